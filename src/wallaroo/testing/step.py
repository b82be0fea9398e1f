"""One step by itself.

Where it runs: in tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wallaroo.engine.blocks import PICKLED
from wallaroo.engine.failures import stop_on_error
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.engine.operators import (
    compute,
    compute_multi,
    compute_state,
    compute_state_multi,
    leave_encoded,
)
from wallaroo.steps import Encoder, KeyExtractor, Step


def run_step(step: Step, inputs: Iterable[Any]) -> list[Any]:
    """Give ``inputs`` to a stateless step, a decoder (payloads), an encoder or a key extractor;
    return what it emits, in order.

    ``None`` filters and lists are flattened as in a running application.  Raises UserCodeError
    where the function raises.
    """
    if step.is_stateful:
        raise TypeError(
            f"'{step.name()}' has state: use run_state_step, which takes (key, event) pairs"
        )
    outputs: list[Any] = []
    failed = stop_on_error(step)
    if isinstance(step, Encoder):
        run = leave_encoded(step, outputs.append, failed)
    else:
        build = compute_multi if step.is_multi else compute
        run = build(step, lambda _, output: outputs.append(output), failed)
    for event in inputs:
        run(None, event)
    if isinstance(step, KeyExtractor):
        _check_keys(outputs)
    return outputs


def _check_keys(keys: list[Any]) -> None:
    for key in keys:
        if not isinstance(key, (str, bytes, int)):
            raise TypeError(f"a key must be str, bytes or int, not {type(key).__name__}: {key!r}")


def run_state_step(
    step: Step, inputs: Iterable[tuple[Any, Any]], state: dict[Any, Any] | None = None
) -> tuple[list[tuple[Any, Any]], dict[Any, Any]]:
    """Give ``(key, event)`` pairs to a state step; return ``(key, output)`` pairs and the state
    objects by key.

    ``state`` holds state objects to begin with; they are copied, as between two batches.
    """
    if not step.is_stateful:
        raise TypeError(f"'{step.name()}' has no state: use run_step")
    begun = {key: PICKLED.dumps(value) for key, value in (state or {}).items()}
    own = KeyedState(step, begun.get, PICKLED)
    outputs: list[tuple[Any, Any]] = []
    build = compute_state_multi if step.is_multi else compute_state
    run = build(step, own, lambda key, output: outputs.append((key, output)), stop_on_error(step))
    for key, event in inputs:
        run(key, event)
    return outputs, {
        key: PICKLED.loads(raw) for key, raw in {**begun, **dict(own.changes())}.items()
    }
