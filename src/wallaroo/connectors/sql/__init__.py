"""SQL databases: tables as sources and sinks."""
