"""One stage, built: its steps fused from the exit back into one ``emit``, and the loop at its head
that feeds them.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import OnError
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.engine.operators import (
    Emit,
    compute,
    compute_multi,
    compute_state,
    compute_state_multi,
    leave_by_key,
    leave_collected,
    leave_encoded,
    leave_to_all,
    leave_with_key,
)
from wallaroo.plan.model import COLLECT_KEY, Plan, SourceEntry, Stage, ToExchange, ToSinks
from wallaroo.steps import Decoder, Encoder, Step

Policy = Callable[[Step], OnError]


def build_exit(
    plan: Plan,
    stage: Stage,
    exchange: Exchange | None,
    outputs: dict[int, list[bytes]],
    policy: Policy,
    freeze: Callable[[Any], Any],
) -> Emit:
    """Return the closure that takes events out of the stage: to its exchange, or encoded to its
    sinks.
    """
    leave = stage.exit
    freezing = (
        (freeze, policy(stage.steps[-1])) if any(step.is_stateful for step in stage.steps) else None
    )
    if isinstance(leave, ToExchange):
        assert exchange is not None
        if leave.keeps_key:
            return leave_with_key(exchange, freezing)
        if leave.extractor is None:
            return leave_collected(COLLECT_KEY, exchange, freezing)
        return leave_by_key(leave.extractor, exchange, policy(leave.extractor), freezing)
    return leave_to_all([_to_sink(plan, sink, outputs[sink], policy) for sink in leave.sinks])


def _pass_through(value: Any) -> Any:
    """Without an encoder, bytes and str are written as they are, anything else as its str()."""
    return value if isinstance(value, (bytes, str)) else str(value)


def maker_of(plan: Plan, stage: Stage) -> Step:
    """Return the step that makes what leaves the stage: the one to blame for an event that cannot
    be packed.
    """
    if stage.steps:
        return stage.steps[-1]
    if isinstance(stage.entry, SourceEntry):
        return plan.sources[stage.entry.source].decoder
    return PASS_THROUGH  # what it passes on has been packed before


PASS_THROUGH: Encoder[Any] = Encoder(_pass_through, "no encoder")


def _to_sink(plan: Plan, sink: int, outputs: list[bytes], policy: Policy) -> Emit:
    encoder = plan.sinks[sink].encoder or PASS_THROUGH
    return leave_encoded(encoder, outputs.append, policy(encoder))


def build_steps(stage: Stage, states: dict[str, KeyedState], emit: Emit, policy: Policy) -> Emit:
    """Fuse the stage's steps, last first, in front of ``emit``."""
    for step in reversed(stage.steps):
        failed = policy(step)
        if step.is_stateful:
            make = compute_state_multi if step.is_multi else compute_state
            emit = make(step, states[step.step_name], emit, failed)
        else:
            emit = (compute_multi if step.is_multi else compute)(step, emit, failed)
    return emit


Payloads = list[bytes]


def decode_and_emit(
    decoder: Decoder[Any], emit: Emit, failed: OnError
) -> Callable[[Payloads], None]:
    """Head of an unkeyed source stage."""
    decode = decoder.function

    def run(payloads: Payloads) -> None:
        for payload in payloads:
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, None)
                continue
            if event is not None:
                emit(None, event)

    return run


def decode_and_ship_raw(
    stage: Stage, decoder: Decoder[Any], exchange: Exchange, policy: Policy
) -> Callable[[Payloads], None]:
    """Head of a source stage that is only a decoder: the payload travels, not the event (decoding
    twice beats pickling once).
    """
    assert isinstance(stage.exit, ToExchange)
    assert stage.exit.extractor is not None
    extractor = stage.exit.extractor
    decode, extract = decoder.function, extractor.function
    failed, key_failed = policy(decoder), policy(extractor)
    routes, route = exchange.routes, exchange.route

    def run(payloads: Payloads) -> None:
        for payload in payloads:
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, None)
                continue
            if event is None:
                continue
            try:
                key = extract(event)
                try:
                    key, append_key, append_value = routes[key]
                except KeyError:
                    key, append_key, append_value = route(key)
            except BaseException as error:
                key_failed(event, error, None)
                continue
            append_key(key)
            append_value(payload)

    return run


Keyed = Callable[[list[Any], list[Any]], None]


def emit_events(emit: Emit) -> Keyed:
    """Head of a stage behind a shuffle that carries events."""

    def run(keys: list[Any], events: list[Any]) -> None:
        for key, event in zip(keys, events, strict=True):
            emit(key, event)

    return run


def decode_keyed(decoder: Decoder[Any], emit: Emit, failed: OnError) -> Keyed:
    """Head of a stage behind a shuffle that carries undecoded payloads."""
    decode = decoder.function

    def run(keys: list[Any], payloads: list[Any]) -> None:
        for key, payload in zip(keys, payloads, strict=True):
            try:
                event = decode(payload)
            except BaseException as error:
                failed(payload, error, key)
                continue
            if event is not None:
                emit(key, event)

    return run


def sinks_of(stage: Stage) -> tuple[int, ...]:
    """Indexes of the sinks this stage writes to."""
    return stage.exit.sinks if isinstance(stage.exit, ToSinks) else ()
