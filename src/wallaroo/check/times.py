"""Rules about event time: assigned once, before the first shuffle.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.check.subject import Subject, title_of
from wallaroo.errors import Problem
from wallaroo.graph.nodes import CollectNode, KeyByNode, StepNode
from wallaroo.graph.walk import walk
from wallaroo.steps import EventTime


def event_time_comes_first(subject: Subject) -> Iterator[Problem]:
    """Require event time before shuffles and branches, once.

    A watermark belongs to a source, whose order is lost after a shuffle.
    """
    for node in subject.of(StepNode):
        if not isinstance(node.step, EventTime):
            continue
        before = [found for found in walk(node) if found is not node]
        if any(isinstance(found, KeyByNode | CollectNode) for found in before):
            yield Problem(
                title_of(node),
                node.place,
                "Events get their time after a key_by() or collect(), where the order of their "
                "source is lost.",
                "Call with_event_time() before the first key_by() or collect().",
            )
        if any(map(subject.is_branched, before)):
            yield Problem(
                title_of(node),
                node.place,
                "Events get their time after their stream has parted, and a source has one time.",
                "Call with_event_time() before branch(), and before a pipeline is used twice.",
            )
        if any(
            isinstance(found, StepNode) and isinstance(found.step, EventTime) for found in before
        ):
            yield Problem(
                title_of(node),
                node.place,
                "Events get a time twice on the way from one source.",
                "Call with_event_time() once.",
            )
