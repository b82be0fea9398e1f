"""A stateless computation: one event in, one or nothing out."""

from __future__ import annotations

from typing import Any

from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.steps.kinds import Step
from wallaroo.steps.losses import Loss


def build(step: Step, site: Site) -> Operator:
    """Call the step's function; ``None`` filters."""
    function = step.function
    emit = site.emit
    failed = site.failed
    filtered = site.lost(Loss.FILTERED)

    def process(key: Any, event: Any) -> None:
        try:
            output = function(event)
        except BaseException as error:
            failed(event, error, key)
        else:
            if output is not None:
                emit(key, output)
            else:
                filtered[0] += 1

    return Operator(process)
