"""Readers: loops that feed a stage from payloads or blocks.

Payloads are a source's, blocks a shuffle's.

A block's head is chosen by its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from wallaroo.engine.blocks.keys import normalize_key
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.failures.error_context import blame, show_frame
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.failures.reading import Reading
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.protocols.framing import Framing, frame_splitter
from wallaroo.steps.kinds import Decoder, KeyExtractor
from wallaroo.steps.losses import UNCOUNTED, Cell

Payloads = Iterable[Any]


class SplitFrames:
    """Head of a source stage for frames: it splits them into payloads."""

    def __init__(
        self, framing: Framing, feed_payloads: Callable[[Iterable[Any]], None], reading: Reading
    ):
        self._split = frame_splitter(framing)
        self._feed_payloads = feed_payloads
        self._reading = reading

    def feed(self, frames: bytes) -> int:
        """Accept a run of whole frames; return their number."""
        payloads = self._split(frames)
        self._feed_payloads(self._reading.over(payloads))
        return len(payloads)

    def flush(self) -> None:
        """Do nothing: no frame waits for others."""


def explained(decoder: Decoder[Any], failed: OnError) -> OnError:
    """Return the handler of payloads for which ``decoder.quick`` failed.

    It passes on the error with which the decoder itself fails.
    """

    def explain(payload: Any, error: BaseException, key: Any) -> None:
        try:
            decoder.function(payload)
        except BaseException as own:
            error = own
        failed(payload, error, key)

    return failed if decoder.quick is decoder.function else explain


def decode_and_emit(
    decode: Callable[[Any], Any], emit: Emit, failed: OnError, filtered: Cell = UNCOUNTED
) -> Callable[[Payloads], None]:
    """Return the head of an unkeyed source stage."""

    def run(payloads: Payloads) -> None:
        for payload in payloads:
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, None)
            else:
                if event is not None:
                    emit(None, event)
                else:
                    filtered[0] += 1

    return run


def decode_and_keep(
    decode: Callable[[Any], Any],
    emit: Emit,
    failed: OnError,
    time: StageTime,
    filtered: Cell = UNCOUNTED,
) -> Callable[[Payloads], None]:
    """Return the head of a source stage that sets event times and emits payloads."""

    def run(payloads: Payloads) -> None:
        for time.payload in payloads:
            try:
                event = decode(time.payload)
            except BaseException as error:
                failed(time.payload, error, None)
            else:
                if event is not None:
                    emit(None, event)
                else:
                    filtered[0] += 1

    return run


def decode_and_ship_raw(
    decode: Callable[[Any], Any],
    extractor: KeyExtractor[Any, Any],
    exchange: Exchange,
    failed: OnError,
    key_failed: OnError,
    filtered: Cell = UNCOUNTED,
) -> Callable[[Payloads], None]:
    """Return the head of a source stage of one pure decoder; it emits payloads."""
    extract = extractor.function
    routes = exchange.routes
    route = exchange.route

    def run(payloads: Payloads) -> None:
        for payload in payloads:
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, None)
                continue
            if event is None:
                filtered[0] += 1
                continue
            try:
                key = extract(event)
                try:
                    normal_key, keys, values, _ = routes[key]
                except KeyError:
                    normal_key, keys, values, _ = route(key)
                if normal_key is None:
                    normal_key = key if type(key) is int else normalize_key(key)
            except BaseException as error:
                key_failed(event, error, None)
                continue
            keys.append(normal_key)
            values.append(payload)

    return run


def ship_by_declared_key(
    decoder: Decoder[Any],
    extractor: KeyExtractor[Any, Any],
    exchange: Exchange,
    ship_decoded: Callable[[Payloads], None],
) -> Callable[[Payloads], None]:
    """Return the head of a source stage whose decoder finds the key without decoding.

    A payload with a new key goes through ``ship_decoded``, the head that decodes: so the key of
    each key's first event is compared with the extractor's, and a payload too short to have a key
    is detected.
    """
    check = _key_check(decoder, extractor, ship_decoded)
    if decoder.key_of is not None:
        return _ship_by_function(decoder.key_of, exchange, check)
    assert decoder.key_place is not None
    # created once: Python 3.11 creates a slice for each `[begin:end]`
    place = slice(*decoder.key_place)
    routes = exchange.routes

    def run(payloads: Payloads) -> None:
        for payload in payloads:
            try:
                own, keys, values, _ = routes[payload[place]]
            except KeyError:
                check(payload)
            else:
                keys.append(own)
                values.append(payload)

    return run


def _ship_by_function(
    key_of: Callable[[bytes], Any], exchange: Exchange, check: Callable[[bytes], None]
) -> Callable[[Payloads], None]:
    routes = exchange.routes

    def run(payloads: Payloads) -> None:
        for payload in payloads:
            try:
                key = key_of(payload)
                normal_key, keys, values, _ = routes[key]
            except Exception:  # a new or invalid key: decoding decides
                check(payload)
                continue
            if normal_key is None:  # numbers: 1, 1.0 and True are equal
                if type(key) is not int:
                    check(payload)
                    continue
                normal_key = key
            keys.append(normal_key)
            values.append(payload)

    return run


def _key_check(
    decoder: Decoder[Any],
    extractor: KeyExtractor[Any, Any],
    ship_decoded: Callable[[Payloads], None],
) -> Callable[[bytes], None]:
    read, declared = _declared_key(decoder)

    def check(payload: bytes) -> None:
        ship_decoded([payload])
        try:
            event = decoder.function(payload)
            if event is None:
                return
            key = extractor.function(event)
        except BaseException:  # the head that decodes has already handled it
            return
        try:
            there = read(payload)
        except Exception as error:
            blame(decoder, show_frame(payload), error)
        if type(key) is not type(there) or key != there:
            wrong = ValueError(
                f"it is declared with key_at={declared}, where this payload has "
                f"{there!r}, but the key extractor '{extractor.step_name}' returned {key!r}"
            )
            blame(decoder, show_frame(payload), wrong)

    return check


def _declared_key(decoder: Decoder[Any]) -> tuple[Callable[[bytes], Any], str]:
    """Return a function that reads the key from a payload, and the text of its declaration."""
    if decoder.key_of is not None:
        return decoder.key_of, getattr(decoder.key_of, "__name__", "a function")
    assert decoder.key_place is not None
    begin, end = decoder.key_place
    return lambda payload: payload[begin:end], f"slice({begin}, {end})"


Keyed = Callable[[list[Any], list[Any]], None]
Timed = Callable[[list[Any], list[Any], list[int], list[int]], None]


def emit_events(emit: Emit) -> Keyed:
    """Return the head of a stage after a shuffle that carries events."""

    def run(keys: list[Any], events: list[Any]) -> None:
        for key, event in zip(keys, events, strict=True):
            emit(key, event)

    return run


def decode_keyed(
    decoder: Decoder[Any], emit: Emit, failed: OnError, filtered: Cell = UNCOUNTED
) -> Keyed:
    """Return the head of a stage after a shuffle that carries undecoded payloads."""
    decode = decoder.quick

    def run(keys: list[Any], payloads: list[Any]) -> None:
        for key, payload in zip(keys, payloads, strict=True):
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, key)
            else:
                if event is not None:
                    emit(key, event)
                else:
                    filtered[0] += 1

    return run


def emit_sided(side: int, emit: Emit) -> Emit:
    """Mark events with their side of a join."""

    def process(key: Any, event: Any) -> None:
        emit(key, (side, event))

    return process


def emit_timed_events(emit: Emit, time: StageTime) -> Timed:
    """Return the head of a stage after a shuffle that carries events with their times."""

    def run(keys: list[Any], events: list[Any], times: list[int], marks: list[int]) -> None:
        for key, event, time.event_ns, time.watermark_ns in zip(
            keys, events, times, marks, strict=True
        ):
            emit(key, event)

    return run


def decode_timed(
    decoder: Decoder[Any], emit: Emit, failed: OnError, time: StageTime, filtered: Cell = UNCOUNTED
) -> Timed:
    """Return the head of a stage after a shuffle of undecoded payloads with their times."""
    decode = decoder.quick

    def run(keys: list[Any], payloads: list[Any], times: list[int], marks: list[int]) -> None:
        for key, payload, time.event_ns, time.watermark_ns in zip(
            keys, payloads, times, marks, strict=True
        ):
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, key)
            else:
                if event is not None:
                    emit(key, event)
                else:
                    filtered[0] += 1

    return run
