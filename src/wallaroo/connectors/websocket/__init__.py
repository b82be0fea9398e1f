"""WebSocket: messages of servers and clients as events and outputs."""
