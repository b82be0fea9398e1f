"""Stateless computations: one event in, one or nothing out, or a list."""

from __future__ import annotations

from typing import Any

from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.operators.outputs import as_list
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


def build_multi(step: Step, site: Site) -> Operator:
    """Call the step's function; emit each item of its list that is not ``None``."""
    function = step.function
    emit = site.emit
    failed = site.failed
    filtered = site.lost(Loss.FILTERED)

    def process(key: Any, event: Any) -> None:
        try:
            outputs = function(event)
            if type(outputs) is not list:
                outputs = as_list(outputs)
        except BaseException as error:
            failed(event, error, key)
        else:
            for output in outputs:
                if output is not None:
                    emit(key, output)
            if not outputs:
                filtered[0] += 1

    return Operator(process)
