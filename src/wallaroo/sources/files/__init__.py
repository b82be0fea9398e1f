"""Many files as one log, read in place and in parallel."""
