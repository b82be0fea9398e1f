"""Rules about vectorized steps: the form of their rows, their states, and what they cannot be mixed
with.

Where it runs: pure.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from wallaroo.check.subject import Subject, title_of, used_steps
from wallaroo.errors import Problem
from wallaroo.graph.nodes import StepNode
from wallaroo.steps import Step
from wallaroo.vectorized.steps import BatchDecoder, BatchStateComputation, Form

FORMS = "numpy.ndarray, pyarrow.RecordBatch, pandas.DataFrame, polars.DataFrame or list"


def rows_have_a_form(subject: Subject) -> Iterator[Problem]:
    """The annotation of a vectorized function's first argument says what rows are to it."""
    for used in used_steps(subject):
        if not used.step.takes_blocks or isinstance(used.step, BatchDecoder):
            continue
        form: Form | None = getattr(used.step, "form", None)
        if form is None:
            what = "Nothing says in which form its function takes its rows."
            yield Problem(
                used.title, used.place, what, f"Annotate its first argument: one of {FORMS}."
            )
        elif form.library and importlib.util.find_spec(form.library) is None:
            what = f"Its function takes its rows as {form.value}, and {form.library} is not here."
            yield Problem(
                used.title, used.place, what, f"Install it, here and on every host: {form.library}."
            )


def layouts_can_be_stored(subject: Subject) -> Iterator[Problem]:
    """The state of a key is a row that holds values, not objects."""
    for used in used_steps(subject):
        step = used.step
        if not isinstance(step, BatchStateComputation) or step.layout is None:
            continue
        if step.layout.hasobject:
            what = f"Its state {step.layout} holds Python objects."
            fix = "Use numbers, bool, S or U of a width; or give a class as state."
            yield Problem(used.title, used.place, what, fix)
        elif (why := _refused(step.layout, step.initial)) is not None:
            what = f"Its initial state {step.initial!r} is no row of {step.layout} ({why})."
            yield Problem(used.title, used.place, what, "Give a value for each field.")


def _refused(layout: Any, initial: Any) -> Exception | None:
    if initial is None:
        return None
    import numpy as np

    try:
        np.array(tuple(initial), layout)
    except (TypeError, ValueError, OverflowError) as error:
        return error
    return None


def blocks_have_no_times(subject: Subject) -> Iterator[Problem]:
    """Blocks travel without the times of their rows."""
    vectorized = next((used for used in used_steps(subject) if used.step.takes_blocks), None)
    if vectorized is None:
        return
    for node in subject.of(StepNode):
        step = node.step
        if isinstance(step, Step) and (step.uses_time or step.keeps_entries):
            what = (
                f"It needs the times of events, and vectorized steps ({vectorized.title}) do not pass "
                f"them on in this version."
            )
            fix = "Use per-event steps throughout an application with windows, timers or joins."
            yield Problem(title_of(node), node.place, what, fix)
