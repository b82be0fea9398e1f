"""Time from a sender to a receiver."""
