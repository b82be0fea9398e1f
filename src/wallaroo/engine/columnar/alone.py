"""Standalone execution of a vectorized step, for application tests."""

from __future__ import annotations

from typing import Any

from wallaroo.engine.columnar.calls import Calls, keys_by
from wallaroo.engine.columnar.operators import computation
from wallaroo.engine.columnar.outputs import encoded
from wallaroo.engine.columnar.readers import payloads_to_blocks
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.interface import Emit, Site
from wallaroo.engine.time.stage_time import StageTime
from wallaroo.steps.kinds import Step
from wallaroo.vectorized.steps import (
    BatchComputation,
    BatchDecoder,
    BatchEncoder,
    BatchKeyExtractor,
)


def process_of(step: Step, outputs: list[Any], failed: OnError) -> Emit:
    """Return a function that runs the step on blocks and appends results to ``outputs``."""

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
    keys_of = keys_by(step)

    def call(before: Any, rows: Any) -> list[Any]:
        return keys_of(rows).tolist()

    def process(keys: Any, rows: Any) -> None:
        outputs.extend(calls(keys, rows, call))

    return process


def _no_state(step: Step) -> Any:
    raise KeyError(step.step_name)
