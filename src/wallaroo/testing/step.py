"""One step by itself."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from wallaroo.engine.blocks.keys import normalize_key
from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.exchange.outputs import emit_encoded
from wallaroo.engine.failures.policies import stop_on_error
from wallaroo.engine.operators.computation import build as call_function
from wallaroo.engine.operators.interface import Emit, Site
from wallaroo.engine.operators.table import build_operator
from wallaroo.engine.stores.evolution import evolving
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Encoder, KeyExtractor, Step


def run_step(step: Step, inputs: Iterable[Any]) -> list[Any]:
    """Pass ``inputs`` to a stateless step; return what it emits, in order.

    The step may be a decoder (of payloads), an encoder or a key extractor, too.  Inputs of a
    vectorized step are blocks, of a vectorized decoder lists of payloads, and so are the outputs of
    a vectorized computation, decoder or key extractor.

    ``None`` filters and lists are flattened as in a running application.  Raises UserCodeError if
    the function raises.
    """
    _check_step(step)
    if step.is_stateful:
        raise TypeError(
            f"'{step.name()}' has state: use run_state_step, which takes (key, event) pairs"
        )
    if step.takes_blocks:
        return list(_block_steps().run_block_step(step, inputs))
    outputs: list[Any] = []
    process = _stateless(step, outputs)
    for event in inputs:
        process(None, event)
    if isinstance(step, KeyExtractor):
        return [normalize_key(key) for key in outputs]
    return outputs


def _check_step(step: Any) -> None:
    if not isinstance(step, Step):
        name = getattr(step, "__name__", repr(step))
        raise TypeError(f"{name} is not a step: decorate it, or call it: {name}(...)")


def _stateless(step: Step, outputs: list[Any]) -> Emit:
    if isinstance(step, Encoder):
        return emit_encoded(step, outputs, stop_on_error(step))
    site = _site(step, lambda _, output: outputs.append(output))
    if step.is_computation:
        return build_operator(step, site).process
    return call_function(step, site).process


def _site(step: Step, emit: Emit, state: KeyedState | None = None) -> Site:
    def state_of(_: Step) -> KeyedState:
        assert state is not None
        return state

    return Site(emit, stop_on_error(step), state_of, StageTime())


def run_state_step(
    step: Step, inputs: Iterable[tuple[Any, Any]], state: dict[Any, Any] | None = None
) -> tuple[list[tuple[Any, Any]], dict[Any, Any]]:
    """Pass ``(key, event)`` pairs to a state step; return its outputs and its state.

    Outputs are ``(key, output)`` pairs, the state is the state objects by key.  A vectorized step
    accepts ``(keys, block)`` pairs, and returns such pairs: with a key for each row.

    ``state`` holds state objects to begin with; they are copied, as between two batches.
    """
    _check_step(step)
    if not step.is_stateful:
        raise TypeError(f"'{step.name()}' has no state: use run_step")
    dumps, _ = evolving(step, PICKLED, None)
    begun = {normalize_key(key): dumps(value) for key, value in (state or {}).items()}
    if step.takes_blocks:
        pairs, states = _block_steps().run_block_state_step(step, inputs, begun)
        return pairs, states
    keyed = KeyedState(step, begun.get, PICKLED)
    outputs: list[tuple[Any, Any]] = []
    site = _site(step, lambda key, output: outputs.append((key, output)), keyed)
    process = build_operator(step, site).process
    for pair in inputs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"{pair!r:.60} is not a (key, event) pair: write ('a', {pair!r:.60})")
        key, event = pair
        process(normalize_key(key), event)
    ended = {**begun, **dict(keyed.changes())}
    return outputs, {key: PICKLED.loads(raw) for key, raw in ended.items() if raw is not None}


def _block_steps() -> ModuleType:
    """Return the module for vectorized steps; tests of other steps need no numpy."""
    from wallaroo.testing import block_step

    return block_step
