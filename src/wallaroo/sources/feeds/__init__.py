"""Sources that one process feeds into a spool."""
