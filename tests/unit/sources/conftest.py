"""Kafka, and processes of sources, for the tests of sources."""

from tests.kafka.fixtures import broker, topic
from tests.unit.ingress.conftest import running

__all__ = ["broker", "running", "topic"]
