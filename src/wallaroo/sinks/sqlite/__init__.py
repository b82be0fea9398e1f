"""SQLite tables as sinks."""
