"""Kafka for the tests of its sources and sinks."""

from tests.connectors.kafka.fixtures import broker, topic

__all__ = ["broker", "topic"]
