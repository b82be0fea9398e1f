"""A source's client that no broker answers any more."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from wallaroo.connectors.kafka import brokers
from wallaroo.connectors.kafka.brokers import REOPEN_S, Brokers, TopicsQuery
from wallaroo.connectors.kafka.client import Inquiry
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
ENDS = {("words", 0): 7}


class Client:
    """An inquiry's client; the first one is not answered while ``is_lost``."""

    opened: ClassVar[list[weakref.ref[Client]]] = []
    is_lost = False
    now = 0.0

    def __init__(self, *_: Any, **__: Any):
        self.opened.append(weakref.ref(self))
        self.is_first = len(self.opened) == 1
        self.is_closed = False
        self.meanwhile: Callable[[], None] = lambda: None

    def _answer(self) -> None:
        if self.is_closed:
            raise RuntimeError("Consumer closed")  # in confluent-kafka's words
        if self.is_first and self.is_lost:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def topics(self) -> dict[str, list[int]]:
        self._answer()
        return {"words": [0]}

    def ids(self, _: Any) -> dict[str, str]:
        return {}

    def offsets(self, partitions: Any, _: int) -> dict[Any, int]:
        self.meanwhile()
        self._answer()
        return dict.fromkeys(partitions, 7)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(Client, "opened", [])
    monkeypatch.setattr(Client, "is_lost", False)
    monkeypatch.setattr(Client, "now", 0.0)
    monkeypatch.setattr(brokers.client, "Inquiry", Client)
    monkeypatch.setattr(brokers.time, "monotonic", lambda: Client.now)
    return Brokers(QUERY)


def first() -> Client:
    client = Client.opened[0]()
    assert client is not None
    return client


def ask_in_vain(asked: Brokers, seconds: float) -> None:
    """Query topics without an answer, so many seconds after the last query."""
    Client.now += seconds
    asked.forget()
    with pytest.raises(PeerError, match="is unavailable"):
        asked.topics()


def test_a_client_that_is_not_answered_for_long_is_given_up_and_another_one_opened(
    asked: Brokers,
) -> None:
    assert asked.topics().ends == ENDS
    Client.is_lost = True
    ask_in_vain(asked, 1.0)
    assert asked._opened is first()
    ask_in_vain(asked, REOPEN_S)
    gc.collect()
    assert Client.opened[0]() is None  # it is freed, which disconnects it

    asked.forget()
    assert asked.topics().ends == ENDS
    assert len(Client.opened) == 2


def test_a_client_that_is_given_up_by_one_thread_serves_the_call_of_another(
    asked: Brokers,
) -> None:
    """The thread of batches and that of the status query one client."""
    assert asked.topics().ends == ENDS

    def lose() -> None:
        first().meanwhile = lambda: None
        Client.is_lost = True
        other = threading.Thread(target=ask_in_vain, args=(asked, REOPEN_S + 1))
        other.start()
        other.join()
        Client.is_lost = False

    first().meanwhile = lose
    assert asked.topics().ends == ENDS
    assert asked.topics().ends == ENDS
    assert len(Client.opened) == 2


def test_an_error_that_comes_in_another_threads_call_does_not_end_a_query() -> None:
    inquiry = Inquiry("127.0.0.1:1", {}, request_s=0.01)

    class Late:
        """An error; while it is looked at, another one comes."""

        def code(self) -> int:
            inquiry._events.append(KafkaError(KafkaError._TRANSPORT))
            return int(KafkaError._TRANSPORT)

    def fail() -> None:
        inquiry._events.append(cast(KafkaError, Late()))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with pytest.raises(KafkaException, match="TIMED_OUT"):
        inquiry._asked(fail)
    inquiry.close()
