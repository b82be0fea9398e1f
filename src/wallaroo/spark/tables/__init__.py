"""DataFrames of Spark as sources."""
