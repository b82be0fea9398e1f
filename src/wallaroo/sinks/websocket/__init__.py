"""WebSocket servers as sinks."""
