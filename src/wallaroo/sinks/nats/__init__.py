"""NATS JetStream subjects as sinks."""
