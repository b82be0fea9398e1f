"""One vectorized step by itself.

Where it runs: in tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wallaroo.engine.failures import stop_on_error
from wallaroo.engine.operators.interface import Site, StageTime
from wallaroo.engine.packing import PICKLED
from wallaroo.steps import Step


def run_block_step(step: Step, inputs: Iterable[Any]) -> list[Any]:
    """Pass blocks to a step without state; return what it emits."""
    from wallaroo.engine.columns.alone import process_of

    outputs: list[Any] = []
    process = process_of(step, outputs, stop_on_error(step))
    for block in inputs:
        process(None, block)
    return outputs


def run_block_state_step(
    step: Step, inputs: Iterable[tuple[Any, Any]], begun: dict[Any, bytes]
) -> tuple[list[tuple[Any, Any]], dict[Any, Any]]:
    """Pass blocks and their keys to a state step.

    Return blocks with keys, and the states by key.
    """
    from wallaroo.engine.columns.keys import keys_of_column
    from wallaroo.engine.columns.operators import state_computation
    from wallaroo.engine.columns.rows import count_of
    from wallaroo.engine.columns.state_table import StateTable

    table = StateTable(step, begun.get, PICKLED)  # type: ignore[arg-type]  # a vectorized state step is one
    outputs: list[tuple[Any, Any]] = []

    def emit(keys: Any, rows: Any) -> None:
        outputs.append((keys.tolist(), rows))

    site = Site(emit, stop_on_error(step), lambda _: table, StageTime())
    process = state_computation(step, site).process  # type: ignore[arg-type]  # the same
    for keys, block in inputs:
        process(keys_of_column(keys, count_of(block)), block)
    ended = {**begun, **dict(table.changes())}
    return outputs, {key: PICKLED.loads(raw) for key, raw in ended.items() if raw is not None}
