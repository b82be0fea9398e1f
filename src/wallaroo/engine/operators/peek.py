"""A peek: a call for each event, which is emitted unchanged."""

from __future__ import annotations

from typing import Any

from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.steps.kinds import Peek


def build(step: Peek[Any], site: Site) -> Operator:
    """Call the step's function, ignore its result, and emit the event."""
    function = step.function
    emit = site.emit
    failed = site.failed

    def process(key: Any, event: Any) -> None:
        try:
            function(event)
        except BaseException as error:
            failed(event, error, key)
        else:
            emit(key, event)

    return Operator(process)
