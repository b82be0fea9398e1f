"""One Kafka broker for all tests of a run; topics of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.kafka.broker import Broker, running_broker

_numbers = count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    broker.create(name, 3)
    return name
