"""PostgreSQL tables as sources."""
