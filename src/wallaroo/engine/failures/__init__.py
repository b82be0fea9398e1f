"""Error policies, error texts and dead letters."""
