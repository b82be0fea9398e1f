"""A checkpoint as tables: its state, commits, sinks and dead letters as Arrow record batches."""
