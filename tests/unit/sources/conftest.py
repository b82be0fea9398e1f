"""Kafka for the tests of sources."""

from tests.kafka.fixtures import broker, topic

__all__ = ["broker", "topic"]
