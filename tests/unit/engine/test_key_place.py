"""Decoders that say where in a payload the key of its event is."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import wallaroo
from wallaroo.dataflow.plan.explain import text
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.levels.level import Level
from wallaroo.errors import UserCodeError
from wallaroo.protocols.framing import frame
from wallaroo.testing.local_runner.runner import LocalRunner

EVENT = struct.Struct(">2sI")
decoded: list[bytes] = []


class Total:
    def __init__(self) -> None:
        self.value = 0


def read(payload: bytes) -> tuple[bytes, int] | None:
    decoded.append(payload)
    key, value = EVENT.unpack(payload)
    return (key, value) if value else None


@wallaroo.key_extractor
def first(event: tuple[Any, int]) -> Any:
    return event[0]


@wallaroo.key_extractor
def as_text(event: tuple[bytes, int]) -> str:
    return event[0].decode()


@wallaroo.key_extractor
def as_number(event: tuple[bytes, int]) -> int:
    return event[0][0]


@wallaroo.state_computation("sum", state=Total)
def add(event: tuple[bytes, int], total: Total) -> tuple[bytes, int]:
    total.value += event[1]
    return event[0], total.value


@wallaroo.encoder
def line(event: tuple[bytes, int]) -> bytes:
    return b"%b %d\n" % event


declared = wallaroo.decoder(4, ">I", pure=True, key_at=slice(0, 2))(read)
plain = wallaroo.decoder(4, ">I", pure=True)(read)
tolerant = wallaroo.decoder(4, ">I", pure=True, key_at=slice(0, 2), on_error="skip")(read)


by_function = wallaroo.decoder(4, ">I", pure=True, key_at=lambda payload: payload[:2])(read)
tolerant_by_function = wallaroo.decoder(
    4, ">I", pure=True, key_at=lambda payload: payload[:2], on_error="skip"
)(read)


def plan_of(decoder: Any, extractor: Any = first) -> Plan:
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, decoder))
    pipeline = source.key_by(extractor).to(add).to_sink(wallaroo.StdoutSinkConfig(line))
    return wallaroo.build_application("sums", pipeline).plan


def outputs(plan: Plan, payloads: list[bytes]) -> tuple[list[bytes], dict[tuple[str, str], int]]:
    runner = LocalRunner(plan)
    frames = b"".join(frame(payload) for payload in payloads)
    result = runner.run_batch([[(0, frames, 1)]], tasks=2)
    return result.outputs[0], result.errors


EVENTS = [EVENT.pack(b"ab", 1), EVENT.pack(b"cd", 2), EVENT.pack(b"ab", 3), EVENT.pack(b"ab", 0)]


@pytest.mark.parametrize("decoder", [declared, by_function])
def test_results_are_those_of_a_decoder_that_does_not_say_it(decoder: Any) -> None:
    assert outputs(plan_of(decoder), EVENTS) == outputs(plan_of(plain), EVENTS)


@pytest.mark.parametrize("extractor", [as_number, as_text])
def test_a_function_reads_keys_of_any_type(extractor: Any) -> None:
    def key_of(payload: bytes) -> Any:
        return extractor.function(EVENT.unpack(payload))

    decoder = wallaroo.decoder(4, ">I", pure=True, key_at=key_of)(read)
    assert outputs(plan_of(decoder, extractor), EVENTS) == outputs(
        plan_of(plain, extractor), EVENTS
    )


@pytest.mark.parametrize("decoder", [declared, by_function])
def test_a_payload_is_decoded_where_its_key_is_and_nowhere_else(decoder: Any) -> None:
    level = Level(plan_of(decoder), 0, 0, 1)
    level.feed_frames(0, b"".join(map(frame, EVENTS)))
    decoded.clear()

    level.feed_frames(0, b"".join(map(frame, EVENTS * 10)))

    assert decoded == []
    assert sum(block.events for _, block in level.finish()) == 44


def test_a_key_that_is_not_there_stops_the_run() -> None:
    wrong = wallaroo.decoder(4, ">I", pure=True, key_at=slice(1, 3))(read)

    with pytest.raises(UserCodeError, match=r"key_at=slice\(1, 3\).*b'b\\x00'.*returned b'ab'"):
        outputs(plan_of(wrong), EVENTS)


def test_a_function_that_reads_another_key_stops_the_run() -> None:
    def second(payload: bytes) -> bytes:
        return payload[1:3]

    wrong = wallaroo.decoder(4, ">I", pure=True, key_at=second)(read)
    with pytest.raises(UserCodeError, match=r"key_at=second.*b'b\\x00'.*returned b'ab'"):
        outputs(plan_of(wrong), EVENTS)


def test_a_function_that_fails_where_decoding_does_not_stops_the_run() -> None:
    def none(payload: bytes) -> bytes:
        raise ValueError("no key here")

    wrong = wallaroo.decoder(4, ">I", pure=True, key_at=none)(read)
    with pytest.raises(UserCodeError, match="no key here"):
        outputs(plan_of(wrong), EVENTS)


def test_a_key_of_another_type_stops_the_run() -> None:
    with pytest.raises(UserCodeError, match="returned 'ab'"):
        outputs(plan_of(declared, as_text), EVENTS)


@pytest.mark.parametrize("bad", [b"", b"a", b"ab", EVENT.pack(b"ab", 1) + b"x"])
@pytest.mark.parametrize("decoder", [tolerant, tolerant_by_function])
def test_a_payload_that_cannot_be_decoded_meets_the_decoders_policy(
    decoder: Any, bad: bytes
) -> None:
    """Too short for a key, or with one that is known."""
    found, errors = outputs(plan_of(decoder), [*EVENTS, bad, *EVENTS])

    assert len(found) == 6
    assert errors == {("read", "skip"): 1}


@pytest.mark.parametrize(
    "place", [slice(None), slice(2, 2), slice(-4, 4), slice(0, 4, 2), (0, 2), slice("a", "b")]
)
def test_what_is_no_place_is_refused(place: Any) -> None:
    with pytest.raises(wallaroo.WallarooParameterError, match="not a place in a payload"):
        wallaroo.decoder(4, ">I", pure=True, key_at=place)


def test_a_place_is_for_pure_decoders() -> None:
    with pytest.raises(wallaroo.WallarooParameterError, match="pure=True"):
        wallaroo.decoder(4, ">I", key_at=slice(0, 2))


def test_the_plan_says_that_frames_are_decoded_once() -> None:
    assert "their keys are read where the decoder says" in text(plan_of(declared))
