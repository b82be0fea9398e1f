"""How events leave a stage of a plan with time: by key into the buckets of an exchange, each with
its time and watermark.

Where it runs: pure (in workers).  These are ``exits.emit_by_key`` with what ``StampedKeys.append``
does written out, which saves a call per event.
"""

from __future__ import annotations

from typing import Any

from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import OnError
from wallaroo.engine.keys import normalize_key
from wallaroo.engine.operators.interface import Emit, StageTime
from wallaroo.steps import KeyExtractor


def emit_timed_by_key(
    extractor: KeyExtractor[Any, Any],
    exchange: Exchange,
    time: StageTime,
    failed: OnError,
    not_packed: OnError,
) -> Emit:
    """Extract the key and put the event into its bucket."""
    extract = extractor.function
    routes: dict[Any, Any] = exchange.routes
    route: Any = exchange.route
    atomic = exchange.atomic

    def process(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            try:
                own, keys, values, put = routes[key]
            except KeyError:
                own, keys, values, put = route(key)
            if own is None:
                own = key if type(key) is int else normalize_key(key)
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
                keys.add_key(own)
                keys.add_time(time.event_ns)
                keys.add_watermark(time.watermark_ns)

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
                own, keys, values, _ = routes[key]
            except KeyError:
                own, keys, values, _ = route(key)
            if own is None:
                own = key if type(key) is int else normalize_key(key)
        except BaseException as error:
            failed(event, error, before)
        else:
            values.append(time.payload)
            keys.add_key(own)
            keys.add_time(time.event_ns)
            keys.add_watermark(time.watermark_ns)

    return process
