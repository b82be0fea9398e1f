"""State, commits, sinks and dead letters of a checkpoint as Arrow batches."""
