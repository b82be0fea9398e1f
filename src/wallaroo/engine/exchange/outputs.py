"""Exits of events from a stage: to an exchange, branches or sinks.

This is the per-event path: no option is looked up here.  An exchange has buckets; events for sinks
are encoded.

An event is captured as of that moment: immutable values are kept, all others are pickled at once
(``engine/blocks/packing.py``). ``not_packed`` is called for an event that cannot be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.blocks.by_fields import cannot_change
from wallaroo.engine.blocks.keys import normalize_key
from wallaroo.engine.blocks.packing import ATOMIC
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.operators.outputs import as_bytes, truth_of
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Branch, Encoder, KeyExtractor
from wallaroo.steps.losses import UNCOUNTED, Cell


def emit_by_key(
    extractor: KeyExtractor[Any, Any], exchange: Exchange, failed: OnError, not_packed: OnError
) -> Emit:
    """Extract the key and put the event into its bucket."""
    extract = extractor.function
    routes = exchange.routes
    route = exchange.route
    atomic = exchange.packing.atomic

    def process(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            try:
                normal_key, keys, values, put = routes[key]
            except KeyError:
                normal_key, keys, values, put = route(key)
            if normal_key is None:
                normal_key = key if type(key) is int else normalize_key(key)
        except BaseException as error:
            failed(event, error, before)
        else:
            if type(event) in atomic:
                values.append(event)
                keys.append(normal_key)
            else:
                try:
                    put(event)
                except BaseException as error:
                    not_packed(event, error, before)
                else:
                    keys.append(normal_key)

    return process


def emit_timed_by_key(
    extractor: KeyExtractor[Any, Any],
    exchange: Exchange,
    time: StageTime,
    failed: OnError,
    not_packed: OnError,
) -> Emit:
    """Put events and times into buckets by key; ``append`` is inlined to save a call."""
    extract = extractor.function
    routes: dict[Any, Any] = exchange.routes
    route: Any = exchange.route
    atomic = exchange.packing.atomic

    def process(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            try:
                normal_key, stamps, values, put = routes[key]
            except KeyError:
                normal_key, stamps, values, put = route(key)
            if normal_key is None:
                normal_key = key if type(key) is int else normalize_key(key)
        except BaseException as error:
            failed(event, error, before)
        else:
            try:
                if type(event) in atomic:
                    values.append(event)
                else:
                    put(event)
            except BaseException as pack_error:
                not_packed(event, pack_error, before)
            else:
                stamps.keys.append(normal_key)
                stamps.times.append(time.event_ns)
                stamps.watermarks.append(time.watermark_ns)

    return process


def emit_raw_by_key(
    extractor: KeyExtractor[Any, Any], exchange: Exchange, time: StageTime, failed: OnError
) -> Emit:
    """Extract the key and put the payload that the event was decoded from into its bucket."""
    extract = extractor.function
    routes: dict[Any, Any] = exchange.routes
    route: Any = exchange.route

    def process(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            try:
                normal_key, stamps, values, _ = routes[key]
            except KeyError:
                normal_key, stamps, values, _ = route(key)
            if normal_key is None:
                normal_key = key if type(key) is int else normalize_key(key)
        except BaseException as error:
            failed(event, error, before)
        else:
            values.append(time.payload)
            stamps.keys.append(normal_key)
            stamps.times.append(time.event_ns)
            stamps.watermarks.append(time.watermark_ns)

    return process


def emit_with_key(exchange: Exchange, not_packed: OnError) -> Emit:
    """Route by the key of the event."""
    routes = exchange.routes
    route = exchange.route
    atomic = exchange.packing.atomic

    def process(key: Any, event: Any) -> None:
        try:
            normal_key, keys, values, put = routes[key]
        except KeyError:
            normal_key, keys, values, put = route(key)
        if type(event) in atomic:
            values.append(event)
            keys.append(key if normal_key is None else normal_key)
        else:
            try:
                put(event)
            except BaseException as error:
                not_packed(event, error, key)
            else:
                keys.append(key if normal_key is None else normal_key)

    return process


def emit_collected(key: str, exchange: Exchange, not_packed: OnError) -> Emit:
    """Route all events by one key."""
    _, keys, values, put = exchange.route(key)
    atomic = exchange.packing.atomic

    def process(before: Any, event: Any) -> None:
        if type(event) in atomic:
            values.append(event)
            keys.append(key)
        else:
            try:
                put(event)
            except BaseException as error:
                not_packed(event, error, before)
            else:
                keys.append(key)

    return process


def emit_encoded(
    encoder: Encoder[Any], outputs: list[bytes], failed: OnError, filtered: Cell = UNCOUNTED
) -> Emit:
    """Encode for a sink; str becomes UTF-8; ``None`` writes nothing."""
    encode = encoder.function
    output_type = encoder.output_type

    def process(key: Any, event: Any) -> None:
        try:
            output = encode(event)
            if type(output) is not output_type and output is not None:
                output = as_bytes(output)
        except BaseException as error:
            failed(event, error, key)
        else:
            if output is not None:
                outputs.append(output)
            else:
                filtered[0] += 1

    return process


def emit_to_all(emits: list[Emit]) -> Emit:
    """Emit every event to all sinks."""
    if len(emits) == 1:
        return emits[0]

    def process(key: Any, event: Any) -> None:
        for emit in emits:
            emit(key, event)

    return process


def emit_branched(split: Branch[Any], where_true: Emit, where_false: Emit, failed: OnError) -> Emit:
    """Emit an event to one of two branches."""
    function = split.function

    def process(key: Any, event: Any) -> None:
        try:
            answer = function(event)
            is_true = answer is True or (answer is not False and truth_of(answer))
        except BaseException as error:
            failed(event, error, key)
        else:
            if is_true:
                where_true(key, event)
            else:
                where_false(key, event)

    return process


def emit_to_each(
    reading: list[Emit],
    copied: list[Emit],
    last: Emit,
    dumps: Callable[[Any], bytes],
    loads: Callable[[bytes], Any],
    failed: OnError,
) -> Emit:
    """Emit every event to all branches, and a copy to each that may change it.

    Branches do not see each other's changes. Branches that only read come first and share the
    event; the ``last`` one receives the event itself.
    """

    def process(key: Any, event: Any) -> None:
        try:
            is_shared = type(event) in ATOMIC or cannot_change(event)
            packed = None if is_shared else dumps(event)
        except BaseException as error:
            failed(event, error, key)
        else:
            for emit in reading:
                emit(key, event)
            for emit in copied:
                emit(key, event if packed is None else loads(packed))
            last(key, event)

    return process
