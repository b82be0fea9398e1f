"""A checkpoint's copy on a second host: the process that keeps it, and the run's side."""
