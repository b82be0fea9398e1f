"""A source's client that no broker answers any more."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from wallaroo.connectors.kafka import brokers
from wallaroo.connectors.kafka.brokers import REOPEN_S, Brokers, TopicsQuery
from wallaroo.errors import PeerError

QUERY = TopicsQuery(
    source="words",
    brokers="127.0.0.1:1",
    topics=("words",),
    start="earliest",
    group="",
    isolation="read_committed",
    on_data_loss="stop",
    is_bounded=False,
    with_metadata=False,
)


class Client:
    """An inquiry's client; the first one is never answered after its first query."""

    opened: list[Client]
    now = 0.0

    def __init__(self, *_: Any, **__: Any):
        self.opened.append(self)
        self.is_closed = False
        self.queries = 0

    def topics(self) -> dict[str, list[int]]:
        self.queries += 1
        if self is self.opened[0] and self.queries > 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return {"words": [0]}

    def ids(self, _: Any) -> dict[str, str]:
        return {}

    def offsets(self, partitions: Any, _: int) -> dict[Any, int]:
        return dict.fromkeys(partitions, 7)

    def close(self) -> None:
        self.is_closed = True


def test_a_client_that_is_not_answered_for_long_is_closed_and_another_one_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Client.opened = []
    monkeypatch.setattr(brokers, "Inquiry", Client)
    monkeypatch.setattr(brokers.time, "monotonic", lambda: Client.now)
    asked = Brokers(QUERY)
    ends = {("words", 0): 7}
    assert asked.topics().ends == ends

    for seconds in (1.0, REOPEN_S, 1.0):
        Client.now += seconds
        asked.forget()
        with pytest.raises(PeerError, match="is unavailable"):
            asked.topics()
        assert len(Client.opened) == 1
        if Client.opened[0].is_closed:
            break
    assert Client.opened[0].is_closed

    asked.forget()
    assert asked.topics().ends == ends
    assert len(Client.opened) == 2
