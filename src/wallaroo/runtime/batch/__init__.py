"""One batch: planned, processed, committed."""
