"""HTTP: requests as events, and outputs as requests."""
