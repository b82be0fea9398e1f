"""State of steps within a batch."""
