"""Operators: each step of a stage as a closure ``(key, event) -> None`` that calls the next one;
built once, from the sink back.

Where it runs: pure (in workers).  This is the per-event path: no option is looked up here, no
isinstance, no logging.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import OnError
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.steps import Encoder, KeyExtractor, Step

Emit = Callable[[Any, Any], None]
# how to freeze a value, and what to do where that fails
Freezing = tuple[Callable[[Any], Any], OnError]


def compute(step: Step, emit: Emit, failed: OnError) -> Emit:
    """A stateless computation: one in, one or nothing out."""
    function = step.function

    def run(key: Any, event: Any) -> None:
        try:
            output = function(event)
        except BaseException as error:
            failed(event, error, key)
            return
        if output is not None:
            emit(key, output)

    return run


def compute_multi(step: Step, emit: Emit, failed: OnError) -> Emit:
    """A stateless computation: one in, a list out."""
    function = step.function

    def run(key: Any, event: Any) -> None:
        try:
            outputs = function(event)
            if type(outputs) is not list:
                outputs = as_list(outputs)
        except BaseException as error:
            failed(event, error, key)
            return
        for output in outputs:
            if output is not None:
                emit(key, output)

    return run


def as_list(outputs: Any) -> list[Any]:
    """Take None, tuples, sets and generators where a list is wanted; reject what is one value
    rather than several.
    """
    if outputs is None:
        return []
    if isinstance(outputs, (str, bytes, bytearray, dict)) or not hasattr(outputs, "__iter__"):
        raise TypeError(
            f"a multi computation must return a list, this one returned {type(outputs).__name__}"
        )
    return list(outputs)


def compute_state(step: Step, state: KeyedState, emit: Emit, failed: OnError) -> Emit:
    """A state computation: the key's state object is mutated in place."""
    function, live, load = step.function, state.live, state.load

    def run(key: Any, event: Any) -> None:
        try:
            own = live[key]
        except KeyError:
            own = load(key)
        try:
            output = function(event, own)
        except BaseException as error:
            failed(event, error, key)
            return
        if output is not None:
            emit(key, output)

    return run


def compute_state_multi(step: Step, state: KeyedState, emit: Emit, failed: OnError) -> Emit:
    """A state computation with a list out."""
    function, live, load = step.function, state.live, state.load

    def run(key: Any, event: Any) -> None:
        try:
            own = live[key]
        except KeyError:
            own = load(key)
        try:
            outputs = function(event, own)
            if type(outputs) is not list:
                outputs = as_list(outputs)
        except BaseException as error:
            failed(event, error, key)
            return
        for output in outputs:
            if output is not None:
                emit(key, output)

    return run


def leave_by_key(
    extractor: KeyExtractor[Any, Any], exchange: Exchange, failed: OnError, freeze: Freezing | None
) -> Emit:
    """Extract the key and put the event in its bucket; behind a state step the event is frozen at
    once.
    """
    extract, routes, route = extractor.function, exchange.routes, exchange.route

    def run(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            try:
                key, append_key, append_value = routes[key]
            except KeyError:
                key, append_key, append_value = route(key)
        except BaseException as error:
            failed(event, error, before)
            return
        append_key(key)
        append_value(event)

    return _leave_frozen(exchange, extract, failed, freeze) if freeze else run


def _leave_frozen(
    exchange: Exchange, extract: Callable[[Any], Any], failed: OnError, freezing: Freezing
) -> Emit:
    routes, route = exchange.routes, exchange.route
    freeze, not_frozen = freezing

    def run(before: Any, event: Any) -> None:
        try:
            key = extract(event)
            try:
                key, append_key, append_value = routes[key]
            except KeyError:
                key, append_key, append_value = route(key)
        except BaseException as error:
            failed(event, error, before)
            return
        try:
            value = freeze(event)
        except BaseException as error:
            not_frozen(event, error, before)
            return
        append_key(key)
        append_value(value)

    return run


def leave_with_key(exchange: Exchange, freezing: Freezing | None) -> Emit:
    """Route by the key that the event came with."""
    routes, route = exchange.routes, exchange.route

    def run(key: Any, event: Any) -> None:
        try:
            key, append_key, append_value = routes[key]
        except KeyError:
            key, append_key, append_value = route(key)
        append_key(key)
        append_value(event)

    return _freeze_in_front(freezing, run) if freezing else run


def leave_collected(key: str, exchange: Exchange, freezing: Freezing | None) -> Emit:
    """Everything to one key."""
    _, append_key, append_value = exchange.route(key)

    def run(_: Any, event: Any) -> None:
        append_key(key)
        append_value(event)

    return _freeze_in_front(freezing, run) if freezing else run


def _freeze_in_front(freezing: Freezing, emit: Emit) -> Emit:
    freeze, failed = freezing

    def run(key: Any, event: Any) -> None:
        try:
            value = freeze(event)
        except BaseException as error:
            failed(event, error, key)
            return
        emit(key, value)

    return run


def leave_encoded(encoder: Encoder[Any], append: Callable[[bytes], None], failed: OnError) -> Emit:
    """Encode for a sink; str becomes UTF-8; ``None`` writes nothing."""
    encode = encoder.function

    def run(key: Any, event: Any) -> None:
        try:
            output = encode(event)
            if type(output) is not bytes:
                if output is None:
                    return
                output = as_bytes(output)
        except BaseException as error:
            failed(event, error, key)
            return
        append(output)

    return run


def as_bytes(output: Any) -> bytes:
    """Turn what an encoder returned into bytes, or say what is wrong with it."""
    if isinstance(output, str):
        return output.encode()
    if isinstance(output, (bytes, bytearray, memoryview)):
        return bytes(output)
    raise TypeError(
        f"an encoder must return bytes or str, this one returned {type(output).__name__}"
    )


def leave_to_all(ways: list[Emit]) -> Emit:
    """Give every output to all sinks."""
    if len(ways) == 1:
        return ways[0]

    def run(key: Any, event: Any) -> None:
        for way in ways:
            way(key, event)

    return run
