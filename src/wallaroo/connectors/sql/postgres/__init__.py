"""PostgreSQL: tables as sources and sinks."""
