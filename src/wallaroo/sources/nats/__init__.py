"""NATS JetStream streams as sources."""
