"""Kafka: topics as sources and sinks."""
