"""SQLite tables as sources."""
