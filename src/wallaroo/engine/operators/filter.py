"""Filters: operators that pass some events unchanged.

``latest_per_key`` emits when the batch has no more input, before time advances for later steps;
keys are in the order of their last events.
"""

from __future__ import annotations

from types import CoroutineType
from typing import Any

from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.operators.outputs import truth_of
from wallaroo.steps.batching import LatestPerKey
from wallaroo.steps.kinds import Filter
from wallaroo.steps.losses import Loss


def build(step: Filter[Any], site: Site) -> Operator:
    """Emit the events for which the step's function returns a true value."""
    function = step.function
    emit = site.emit
    failed = site.failed
    filtered = site.lost(Loss.FILTERED)
    coroutine = CoroutineType

    def process(key: Any, event: Any) -> None:
        try:
            answer = function(event)
            is_unwanted = not answer
            if not is_unwanted and answer is not True and type(answer) is coroutine:
                truth_of(answer)
        except BaseException as error:
            failed(event, error, key)
        else:
            if is_unwanted:
                filtered[0] += 1
            else:
                emit(key, event)

    return Operator(process)


def build_latest(step: LatestPerKey[Any], site: Site) -> Operator:
    """Keep the last event of each key, with its time, until the batch has no more input."""
    newest: dict[Any, tuple[Any, int, int]] = {}
    emit = site.emit
    time = site.time
    replaced = site.lost(Loss.REPLACED)

    def process(key: Any, event: Any) -> None:
        if newest.pop(key, None) is not None:
            replaced[0] += 1
        newest[key] = event, time.event_ns, time.watermark_ns

    def flush() -> None:
        before = time.event_ns, time.watermark_ns
        for key, (event, event_ns, watermark_ns) in newest.items():
            time.event_ns = event_ns
            time.watermark_ns = watermark_ns
            emit(key, event)
        newest.clear()
        time.event_ns, time.watermark_ns = before

    def advance(watermark_ns: int) -> None:
        flush()

    return Operator(process, advance, flush)
