"""One vectorized step by itself.

Where it runs: in tests.  It loads numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.columnar.alone import process_of
from wallaroo.engine.columnar.keys import keys_of_column
from wallaroo.engine.columnar.operators import state_computation
from wallaroo.engine.columnar.rows import count_of
from wallaroo.engine.columnar.state_table import StateTable
from wallaroo.engine.failures.policies import stop_on_error
from wallaroo.engine.operators.interface import Site
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Step


def run_block_step(step: Step, inputs: Iterable[Any]) -> list[Any]:
    """Pass blocks to a step without state; return what it emits."""
    outputs: list[Any] = []
    process = process_of(step, outputs, stop_on_error(step))
    for block in inputs:
        process(None, block)
    return outputs


def run_block_state_step(
    step: Step, inputs: Iterable[tuple[Any, Any]], begun: dict[Any, bytes]
) -> tuple[list[tuple[Any, Any]], dict[Any, Any]]:
    """Pass blocks and keys to a state step; return those, and states by key."""
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
