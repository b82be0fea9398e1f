"""Work on whole columns: times, groups, and accumulators of rows."""
