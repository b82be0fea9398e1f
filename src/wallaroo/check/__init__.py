"""Can it run: one rule per function, all problems at once."""
