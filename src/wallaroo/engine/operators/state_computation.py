"""State computations: an event and its key's state in, one event or nothing out, or a list."""

from __future__ import annotations

from typing import Any

from wallaroo.engine.operators import timer_state as timed_state
from wallaroo.engine.operators.interface import Operator, Site
from wallaroo.engine.operators.outputs import as_list
from wallaroo.steps.context import Context
from wallaroo.steps.kinds import NO_TIMING, StateComputation, StateComputationMulti


def build(step: StateComputation[Any, Any, Any], site: Site) -> Operator:
    """Call the step's function; it changes the key's state object in place."""
    if step.timing != NO_TIMING:
        return timed_state.build(step, site)
    function = step.function
    emit = site.emit
    failed = site.failed
    state = site.state_of(step)
    live = state.live
    load = state.load
    context = Context(state.drop, site.time)

    def process(key: Any, event: Any) -> None:
        try:
            stored = live[key]
        except KeyError:
            stored = load(key)
        try:
            output = function(event, stored)
        except BaseException as error:
            failed(event, error, key)
        else:
            if output is not None:
                emit(key, output)

    def process_with_context(key: Any, event: Any) -> None:
        try:
            stored = live[key]
        except KeyError:
            stored = load(key)
        context.key = key
        try:
            output = function(event, stored, context)
        except BaseException as error:
            failed(event, error, key)
        else:
            if output is not None:
                emit(key, output)

    return Operator(process_with_context if step.takes_context else process)


def build_multi(step: StateComputationMulti[Any, Any, Any], site: Site) -> Operator:
    """Call the step's function, which returns a list; it changes the state object in place."""
    if step.timing != NO_TIMING:
        return timed_state.build(step, site)
    function = step.function
    emit = site.emit
    failed = site.failed
    state = site.state_of(step)
    live = state.live
    load = state.load
    context = Context(state.drop, site.time)

    def process(key: Any, event: Any) -> None:
        try:
            stored = live[key]
        except KeyError:
            stored = load(key)
        try:
            outputs = function(event, stored)
            if type(outputs) is not list:
                outputs = as_list(outputs)
        except BaseException as error:
            failed(event, error, key)
        else:
            for output in outputs:
                if output is not None:
                    emit(key, output)

    def process_with_context(key: Any, event: Any) -> None:
        try:
            stored = live[key]
        except KeyError:
            stored = load(key)
        context.key = key
        try:
            outputs = function(event, stored, context)
            if type(outputs) is not list:
                outputs = as_list(outputs)
        except BaseException as error:
            failed(event, error, key)
        else:
            for output in outputs:
                if output is not None:
                    emit(key, output)

    return Operator(process_with_context if step.takes_context else process)
