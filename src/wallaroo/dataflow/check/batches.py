"""Rules about vectorized steps: the form of rows, states, and other steps."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from typing import Any

from wallaroo.dataflow.check.subject import Subject, problem_at, title_of, used_steps
from wallaroo.dataflow.graph import nodes
from wallaroo.dataflow.graph.walk import upstreams, walk
from wallaroo.errors import Problem
from wallaroo.steps.kinds import Step
from wallaroo.vectorized.steps import BatchDecoder, BatchStateComputation, Column, ColumnTime, Form

FORMS = "numpy.ndarray, pyarrow.RecordBatch, pandas.DataFrame, polars.DataFrame or list"


def rows_have_a_form(subject: Subject) -> Iterator[Problem]:
    """Require an annotated form of rows, of an installed library, in vectorized functions."""
    for used in used_steps(subject):
        if not used.step.takes_blocks or isinstance(used.step, BatchDecoder):
            continue
        if isinstance(used.step.function, Column):
            continue
        form: Form | None = getattr(used.step, "form", None)
        if form is None:
            what = _unannotated(used.step.function)
            yield used.problem(what, f"Annotate its first argument: one of {FORMS}.")
        elif form.library and importlib.util.find_spec(form.library) is None:
            what = f"Its function takes its rows as {form.value}, and {form.library} is not here."
            yield used.problem(what, f"Install it, here and on every host: {form.library}.")


def _unannotated(function: Any) -> str:
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.annotation is first.empty:
        return "Nothing says in which form its function takes its rows."
    shown = getattr(first.annotation, "__name__", first.annotation)
    return f"Its first argument is annotated with {shown}, which is not a form of rows."


def layouts_can_be_stored(subject: Subject) -> Iterator[Problem]:
    """Require states that are rows of values, not of objects."""
    for used in used_steps(subject):
        step = used.step
        if not isinstance(step, BatchStateComputation) or step.layout is None:
            continue
        if step.layout.hasobject:
            what = f"Its state {step.layout} holds Python objects."
            fix = "Use numbers, bool, S or U of a width; or give a class as state."
            yield used.problem(what, fix)
        elif (why := _refused(step.layout, step.initial)) is not None:
            what = f"Its initial state {step.initial!r} is not a row of {step.layout} ({why})."
            yield used.problem(what, "Give a value for each field.")


def _refused(layout: Any, initial: Any) -> Exception | None:
    if initial is None:
        return None
    import numpy as np

    try:
        row = np.array(tuple(initial), layout)
        stays = [
            row[name].dtype.kind in "fc" or np.array_equal(row[name], value)  # floats are rounded
            for name, value in zip(row.dtype.names or (), initial, strict=True)
        ]
    except (TypeError, ValueError, OverflowError) as error:
        return error
    return None if all(stays) else ValueError("a value would change")


def times_are_known(subject: Subject) -> Iterator[Problem]:
    """Reject vectorized steps among timed ones, unless a column has the times of their rows."""
    steps = [node for node in subject.of(nodes.StepNode) if isinstance(node.step, Step)]
    timed = [node for node in steps if node.step.uses_time or node.step.keeps_entries]
    if not timed:
        return
    for node in (node for node in subject.nodes if _takes_blocks(node)):
        comes_first = _comes_first(subject, node)
        if isinstance(node, nodes.StepNode) and isinstance(node.step, ColumnTime):
            if not comes_first:
                what = f"It names a column, {node.step.column!r}, and events come to it."
                fix = (
                    "Put it directly behind a vectorized decoder and vectorized steps; or give it "
                    f"a function: with_event_time(lambda event: event[{node.step.column!r}])."
                )
                yield problem_at(node, what, fix)
            continue
        if isinstance(node, nodes.StepNode) and (comes_first or _comes_last(subject, node)):
            continue
        if isinstance(node, nodes.KeyByNode) and comes_first and _have_times(node):
            if _is_merged_with_itself(subject, node):
                what = "Its rows are merged with themselves, and would meet block by block."
                yield problem_at(node, what, "Use a per-event key extractor.")
            continue
        what = (
            f"It is a vectorized step among steps for which time matters ({title_of(timed[0])}), "
            f"and blocks carry no times here."
        )
        fix = (
            "Such steps may come first, directly behind a vectorized decoder, or last, after all "
            "shuffles; between them, use per-event steps and key extractors. A vectorized key "
            'extractor may follow with_event_time("column") and vectorized steps: directly, if '
            "their stream has other uses; not behind branch()."
        )
        yield problem_at(node, what, fix)


def _have_times(node: nodes.Node) -> bool:
    """Return whether a column sets the times of all rows that reach a node."""
    if isinstance(node, nodes.StepNode) and isinstance(node.step, ColumnTime):
        return True
    return not isinstance(node, nodes.SourceNode) and all(map(_have_times, upstreams(node)))


def _takes_blocks(node: nodes.Node) -> bool:
    own = getattr(node, "step", None) or getattr(node, "extractor", None)
    return isinstance(own, Step) and own.takes_blocks


def _is_merged_with_itself(subject: Subject, node: nodes.KeyByNode) -> bool:
    """Return whether a stream is merged with itself right before or after its key_by."""
    merged = [list(_merged(each)) for each in (node.upstream, *subject.of(nodes.MergeNode))]
    return len(set(merged[0])) < len(merged[0]) or any(each.count(node) > 1 for each in merged)


def _merged(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield a node, or the nodes merged in it, and each merge."""
    yield node
    if isinstance(node, nodes.MergeNode):
        for before in upstreams(node):
            yield from _merged(before)


def _comes_first(subject: Subject, node: nodes.Node) -> bool:
    """Return whether only vectorized steps separate a step from its decoder.

    Rows remain rows if their stream splits right before or after a key_by.
    """
    parting = {node, *(_merged(node.upstream) if isinstance(node, nodes.KeyByNode) else ())}
    return all(
        (before in parting or not subject.is_branched(before))
        and (
            isinstance(before, nodes.MergeNode)
            or _takes_blocks(before)
            or (isinstance(before, nodes.SourceNode) and _makes_blocks(before))
        )
        for before in walk(node)
    )


def _makes_blocks(node: nodes.SourceNode) -> bool:
    return isinstance(getattr(node.config, "decoder", None), BatchDecoder)


def _comes_last(subject: Subject, node: nodes.Node) -> bool:
    """Return whether no shuffle and no timed step follows a step."""
    return not any(
        isinstance(after, nodes.KeyByNode | nodes.CollectNode) or _is_timed(after)
        for after in subject.nodes
        if after is not node and node in walk(after)
    )


def _is_timed(node: nodes.Node) -> bool:
    step = getattr(node, "step", None)
    return isinstance(step, Step) and (step.uses_time or step.keeps_entries)
