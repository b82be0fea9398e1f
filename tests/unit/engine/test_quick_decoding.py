"""Serdes that decode without a call of their own: events and errors are those of ``decode``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

import wallaroo
from wallaroo.errors import UserCodeError
from wallaroo.serdes import Json, MessagePack
from wallaroo.testing import Wire, run_local


@dataclass(frozen=True, slots=True)
class Item:
    id: int
    at: int = 1_700_000_000


class Pair(NamedTuple):
    id: int
    at: int = 1_700_000_000


Pipelines = Callable[[wallaroo.Pipeline[Any]], wallaroo.Pipeline[Any]]


def identity(event: Any) -> Any:
    return event.id


def seconds(event: Any) -> int:
    return int(event.at) * wallaroo.seconds(1)


def timed(events: wallaroo.Pipeline[Any]) -> wallaroo.Pipeline[Any]:
    return events.with_event_time(seconds)


SHAPES: dict[str, Pipelines] = {
    "at once": lambda events: events.map(identity),
    "keyed": lambda events: events.key_by(identity).map(identity),
    "keyed with times": lambda events: timed(events).key_by(identity).map(identity),
    "branched": lambda events: events.filter(lambda e: e.id > 0).key_by(identity).map(identity),
}
SERDES: dict[str, Any] = {
    "json": Json(Item),
    "named tuple": Json(Pair),
    "one of several": Json(Item | Pair, tag="kind"),
    "msgpack": MessagePack(Item),
}


def application(serde: Any, shape: Pipelines) -> wallaroo.Application:
    source = wallaroo.TCPSourceConfig("items", "127.0.0.1", 0, serde.decoder)
    pipeline = shape(wallaroo.source("items", source))
    return wallaroo.build_application(
        "items", pipeline.to_sink(wallaroo.StdoutSinkConfig(Json().line_encoder))
    )


def wrong(serde: Any, good: bytes) -> bytes:
    """Return a payload whose id is a text."""
    text = b"\x02" if serde is SERDES["msgpack"] else b"2"
    return good.replace(text, b"\xa12" if serde is SERDES["msgpack"] else b'"2"', 1)


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SERDES)
def test_events_and_the_reason_of_a_wrong_one_are_those_of_decode(name: str, shape: str) -> None:
    serde = SERDES[name]
    kind = Pair if name == "named tuple" else Item
    good = [serde.encoder.function(kind(number)) for number in (1, 2, 3)]
    wanted = [b"1\n", b"2\n", b"3\n"]

    run = run_local(application(serde, SHAPES[shape]), {"items": Wire(b"".join(map(frame, good)))})
    assert sorted(run.outputs) == wanted

    bad = wrong(serde, good[1])
    with pytest.raises(UserCodeError) as failed:
        run_local(application(serde, SHAPES[shape]), {"items": Wire(frame(good[0]) + frame(bad))})
    with pytest.raises(ValueError) as own:
        serde.decoder.function(bad)
    assert failed.value.cause.endswith(str(own.value))
    assert "expected int, got '2' (str)" in failed.value.cause
    assert "msgspec" not in failed.value.cause


@pytest.mark.parametrize("serde_class", [Json, MessagePack])
def test_events_of_classes_that_are_not_wanted_are_filtered(serde_class: Any) -> None:
    everything = serde_class(Item | Pair, tag="kind").encoder.function
    wanted = serde_class(Pair | None, tag="kind")
    payloads = [everything(event) for event in (Item(1), Pair(2), Item(3), Pair(4))]

    run = run_local(
        application(wanted, SHAPES["keyed"]), {"items": Wire(b"".join(map(frame, payloads)))}
    )

    assert sorted(run.outputs) == [b"2\n", b"4\n"]
    (filtered,) = run.dropped.values()
    assert filtered == {"filtered": 2}
