"""Pipelines that an application creates but does not use.

A pipeline never changes: ``lines.map(clean)`` without a use of its result is a step that no event
reaches.  It is recognized by having been garbage-collected when the application is built: one that
is still referenced may be intended for something else.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from wallaroo.dataflow.check.subject import title_of
from wallaroo.dataflow.graph.nodes import Node, SideNode, SourceNode
from wallaroo.dataflow.graph.walk import walk
from wallaroo.errors import Problem


@dataclass(frozen=True, slots=True)
class _Made:
    """Weak reference to a pipeline's newest node, with its name in problems."""

    node: weakref.ref[Node]
    title: str
    place: str


_made: ContextVar[list[_Made] | None] = ContextVar("_made", default=None)


@contextmanager
def noting_pipelines() -> Iterator[None]:
    """Record all pipelines created in the block."""
    token = _made.set([])
    try:
        yield
    finally:
        _made.reset(token)


def note(node: Node) -> None:
    """Record a pipeline by its newest node, if recording is on."""
    noted = _made.get()
    if noted is not None and not isinstance(node, SourceNode | SideNode):
        noted.append(_Made(weakref.ref(node), title_of(node), node.place))


def discarded(root: Node) -> Iterator[Problem]:
    """Yield a problem for each line whose pipeline is gone, and not part of this graph."""
    used = {node.place for node in walk(root)}
    for pipeline in _made.get() or ():
        if pipeline.node() is None and pipeline.place not in used:
            used.add(pipeline.place)
            what = "What it returned is not used, so no event gets there: pipelines never change."
            fix = "Continue with what it returns: lines = lines.map(...)."
            yield Problem(pipeline.title, pipeline.place, what, fix)
