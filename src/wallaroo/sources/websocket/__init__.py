"""WebSocket servers as sources."""
