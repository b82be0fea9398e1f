"""SQLite: tables as sources and sinks."""
