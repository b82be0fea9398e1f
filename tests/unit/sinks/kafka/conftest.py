"""Kafka for the tests of sinks."""

from tests.kafka.fixtures import broker, topic

__all__ = ["broker", "topic"]
