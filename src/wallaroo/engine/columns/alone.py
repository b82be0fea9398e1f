"""A vectorized step by itself, for tests of applications.

Where it runs: pure.
"""

from __future__ import annotations

from typing import Any

from wallaroo.engine.columns.calls import Calls, given_as
from wallaroo.engine.columns.exits import encoded
from wallaroo.engine.columns.heads import payloads_to_blocks
from wallaroo.engine.columns.keys import keys_of_column
from wallaroo.engine.columns.operators import computation
from wallaroo.engine.columns.rows import count_of
from wallaroo.engine.failures import OnError
from wallaroo.engine.operators.interface import Emit, Site, StageTime
from wallaroo.steps import Step
from wallaroo.vectorized.steps import (
    BatchComputation,
    BatchDecoder,
    BatchEncoder,
    BatchKeyExtractor,
)


def process_of(step: Step, outputs: list[Any], failed: OnError) -> Emit:
    """Return a function that accepts blocks and runs the step on them.

    It appends the results to ``outputs``: blocks, keys or encoded outputs.
    """

    def emit(keys: Any, rows: Any) -> None:
        outputs.append(rows)

    if isinstance(step, BatchEncoder):
        return encoded(step, outputs.extend, failed)
    if isinstance(step, BatchDecoder):
        decode = payloads_to_blocks(step, emit, failed)
        return lambda keys, payloads: decode(payloads)
    if isinstance(step, BatchKeyExtractor):
        return _keys(step, outputs, failed)
    assert isinstance(step, BatchComputation)
    return computation(step, Site(emit, failed, _no_state, StageTime())).process


def _keys(step: BatchKeyExtractor[Any, Any], outputs: list[Any], failed: OnError) -> Emit:
    calls = Calls(step, failed)

    def call(before: Any, rows: Any) -> list[Any]:
        return keys_of_column(step.function(given_as(step.form, rows)), count_of(rows)).tolist()

    def process(keys: Any, rows: Any) -> None:
        outputs.append(calls(keys, rows, call))

    return process


def _no_state(step: Step) -> Any:
    raise KeyError(step.step_name)
