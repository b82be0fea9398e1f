"""The micro-batch host."""
