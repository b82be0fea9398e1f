"""Applications about values: what filters, what several outputs may be, keys of every kind, state
that is emitted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wallaroo
from tests.conformance.apps.shapes import build, count_one, count_two
from tests.conformance.apps.steps import by_first_word, by_itself, sink, source, text
from wallaroo.api.application import Application


@wallaroo.decoder(name="drops x")
def drops_x(payload: bytes) -> str | None:
    return None if payload.startswith(b"x") else payload.decode()


@wallaroo.computation("drops y")
def drops_y(event: str) -> str | None:
    return None if event.startswith("y") else event


class Seen:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.state_computation("every second", state=Seen)
def every_second(event: str, own: Seen) -> str | None:
    own.count += 1
    return None if own.count % 2 else f"{event} {own.count}"


@wallaroo.encoder("drops z")
def drops_z(event: str) -> str | None:
    return None if event.startswith("z") else event


def none_filters(inputs: Path, outputs: Path) -> Application:
    """In the decoder, a computation, a state computation and the encoder."""
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), drops_x))
    pipeline = lines.to(drops_y).key_by(by_first_word).to(every_second)
    return build(
        "none filters",
        pipeline.to_sink(wallaroo.FileSinkConfig(outputs / "out.txt", drops_z, form="lines")),
    )


def _generate(event: str) -> Iterator[str]:
    yield f"{event} 1"
    yield f"{event} 2"


@wallaroo.computation_multi("many")
def many(event: str) -> Any:
    """What the event asks for."""
    returns: dict[str, Any] = {
        "list": ["list 1", "list 2"],
        "empty": [],
        "none": None,
        "tuple": ("tuple 1", "tuple 2", "tuple 3"),
        "generator": _generate(event),
        "holes": ["holes 1", None, "holes 3"],
    }
    return returns[event]


@wallaroo.state_computation_multi("many again", state=Seen)
def many_again(event: str, own: Seen) -> Any:
    """As many outputs as events so far, as a generator; none for the first of a key."""
    own.count += 1
    return (
        (f"{event} {own.count}{letter}" for letter in "abcdef"[: own.count - 1])
        if own.count > 1
        else None
    )


def several_outputs(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).to(many).key_by(by_first_word).to(many_again)
    return build("several outputs", pipeline.to_sink(sink(outputs)))


@wallaroo.key_extractor("any kind")
def any_kind(event: str) -> Any:
    kind, _, value = event.partition(":")
    return value if kind == "str" else value.encode() if kind == "bytes" else int(value)


def keys_of_every_kind(inputs: Path, outputs: Path) -> Application:
    """``1``, ``b"1"`` and ``"1"`` are three keys; keys may be empty, or longer than LMDB's."""
    return build(
        "keys of every kind", source(inputs).key_by(any_kind).to(count_one).to_sink(sink(outputs))
    )


def pair_of(event: str) -> tuple[str, int]:
    return event[0], len(event)


def pairs_as_keys(inputs: Path, outputs: Path) -> Application:
    """A lambda is the key extractor; the second key changes within windows and behind a shuffle."""
    counted = source(inputs).key_by(pair_of).to(count_one)
    again = counted.key_by(lambda text: (text[0], b"x", len(text.split()[0]))).to(count_two)
    return build("pairs as keys", again.to_sink(sink(outputs)))


@wallaroo.key_extractor("at random")
def at_random(event: str) -> int:
    return random.getrandbits(62)


def random_keys(inputs: Path, outputs: Path) -> Application:
    """The key is extracted once: were it extracted again behind the shuffle, an event could meet no
    state of its own task.
    """
    return build(
        "random keys", source(inputs).key_by(at_random).to(count_one).to_sink(sink(outputs))
    )


class Own:
    """State that is emitted as it is, and changes later."""

    def __init__(self) -> None:
        self.key = ""
        self.seen: list[int] = []


@wallaroo.state_computation("remember", state=Own)
def remember(event: str, own: Own) -> Own:
    key, _, number = event.partition(" ")
    own.key = key
    own.seen.append(int(number))
    return own


@wallaroo.key_extractor("key of state")
def key_of_state(event: Own) -> str:
    return event.key


@wallaroo.state_computation("show", state=Seen)
def show(event: Own, own: Seen) -> str:
    own.count += 1
    return f"{event.key} {own.count}: {','.join(map(str, event.seen))}"


def state_as_output(inputs: Path, outputs: Path) -> Application:
    """What crosses the shuffle is the state as it was at that moment."""
    pipeline = source(inputs).key_by(by_first_word).to(remember).key_by(key_of_state).to(show)
    return build("state as output", pipeline.to_sink(sink(outputs)))


def state_as_output_collected(inputs: Path, outputs: Path) -> Application:
    pipeline = source(inputs).key_by(by_first_word).to(remember).collect().to(show)
    return build("state as output, collected", pipeline.to_sink(sink(outputs)))


@wallaroo.decoder(name="sizes")
def sizes(payload: bytes) -> str:
    return f"{type(payload).__name__}:{len(payload)}"


def empty_payloads(inputs: Path, outputs: Path) -> Application:
    """An empty line is a message."""
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(inputs / "in.txt"), sizes))
    return build("empty payloads", lines.key_by(by_itself).to(count_one).to_sink(sink(outputs)))


def empty_outputs(inputs: Path, outputs: Path) -> Application:
    """An empty event keeps its place, and an empty output is an output."""
    encoder = wallaroo.FileSinkConfig(outputs / "out.txt", text, form="lines")
    return build("empty outputs", source(inputs).key_by(by_itself).to(pass_state).to_sink(encoder))


@wallaroo.state_computation("pass state", state=Seen)
def pass_state(event: str, own: Seen) -> str:
    own.count += 1
    return event


def state_survives(inputs: Path, outputs: Path) -> Application:
    """Two state steps in one stage, each with a state of its own under the same key."""
    pipeline = source(inputs).key_by(by_first_word).to(count_one).to(count_two)
    return build("state survives", pipeline.to_sink(sink(outputs)))
