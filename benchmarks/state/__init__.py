"""Size of state, memory and disk over time."""
