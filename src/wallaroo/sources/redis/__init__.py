"""Redis streams as sources."""
