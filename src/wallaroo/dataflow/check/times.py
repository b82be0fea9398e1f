"""Rules for event time.

It is assigned once, before the first shuffle, if anything reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.dataflow.check.subject import Subject, problem_at, used_steps
from wallaroo.dataflow.graph.nodes import CollectNode, KeyByNode, SinkNode, StepNode
from wallaroo.dataflow.graph.walk import walk
from wallaroo.errors import Problem
from wallaroo.sinks.interface import SinkConfig
from wallaroo.steps.kinds import NO_TIMING, EventTime
from wallaroo.user_code.compiled import attributes_used

CONTEXT = {"function": 2, "on_end": 1}  # the context's place among the arguments


def event_time_comes_first(subject: Subject) -> Iterator[Problem]:
    """Require event time before shuffles and branches, once.

    A watermark belongs to a source, whose order is lost after a shuffle.
    """
    for node in subject.of(StepNode):
        if not isinstance(node.step, EventTime):
            continue
        before = [other for other in walk(node) if other is not node]
        if any(isinstance(other, KeyByNode | CollectNode) for other in before):
            yield problem_at(
                node,
                "Events get their time after a key_by() or collect(), where the order of their "
                "source is lost.",
                "Call with_event_time() before the first key_by() or collect().",
            )
        if any(map(subject.is_branched, before)):
            yield problem_at(
                node,
                "Events get their time after their stream has parted, and a source has one time.",
                "Call with_event_time() before branch(), and before a pipeline is used twice.",
            )
        if any(
            isinstance(other, StepNode) and isinstance(other.step, EventTime) for other in before
        ):
            yield problem_at(
                node,
                "Events get a time twice on the way from one source.",
                "Call with_event_time() once.",
            )


def times_that_are_read_are_there(subject: Subject) -> Iterator[Problem]:
    """Require event time if a function reads it, unless a step of the pipeline sets it."""
    steps = list(used_steps(subject))
    if any(used.step.uses_time or used.step.keeps_entries for used in steps):
        return
    for used in steps:
        on_end = getattr(used.step, "timing", NO_TIMING).on_end
        read = set(attributes_used(used.step.function, CONTEXT["function"]))
        if on_end is not None:
            read |= attributes_used(on_end.function, CONTEXT["on_end"])
        if used.step.is_stateful and read & {"event_time", "watermark"}:
            what = "It reads the event time of its context, and events have no time."
            fix = "Add .with_event_time(...) after wallaroo.source(...)."
            yield used.problem(what, fix)


def marks_have_times(subject: Subject) -> Iterator[Problem]:
    """Require event time if a sink waits for the watermark."""
    if any(used.step.uses_time for used in used_steps(subject)):
        return
    for node in subject.of(SinkNode):
        for config in node.sinks:
            if isinstance(config, SinkConfig) and getattr(config, "needs_time", False):
                what = f"{config.label} marks what the watermark has passed, and there is none."
                fix = "Add .with_event_time(...) after wallaroo.source(...)."
                yield problem_at(node, what, fix)
