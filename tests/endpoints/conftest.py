"""Kafka for the test of its output in trials."""

from tests.connectors.kafka.fixtures import broker

__all__ = ["broker"]
