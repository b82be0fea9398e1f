"""A filter: one event in, the same or nothing out.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from typing import Any

from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.steps.kinds import Filter
from wallaroo.steps.losses import Loss


def build(step: Filter[Any], site: Site) -> Operator:
    """Emit the events for which the step's function returns a true value."""
    function = step.function
    emit = site.emit
    failed = site.failed
    filtered = site.lost(Loss.FILTERED)

    def process(key: Any, event: Any) -> None:
        try:
            is_wanted = bool(function(event))
        except BaseException as error:
            failed(event, error, key)
        else:
            if is_wanted:
                emit(key, event)
            else:
                filtered[0] += 1

    return Operator(process)
