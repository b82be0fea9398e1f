"""The user's modules in worker processes: their version, and values that a set-up left there."""
