"""NATS JetStream: streams as sources and sinks."""
