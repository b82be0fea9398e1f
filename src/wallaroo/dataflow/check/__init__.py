"""Checks before a run: one rule per function, all problems at once."""
