"""Redis: streams as sources and sinks."""
