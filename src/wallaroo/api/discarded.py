"""Pipelines that an application makes and does not use.

A pipeline never changes: ``lines.map(clean)`` without a use of its result is a step that no event
reaches.  It is recognized by being gone when the application is built: one that is still there,
such as the other of two that a function returned, may be meant for something else.
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
    """Newest node of a pipeline: whether it still exists, and its name in problems."""

    node: weakref.ref[Node]
    title: str
    place: str


_made: ContextVar[list[_Made] | None] = ContextVar("_made", default=None)


@contextmanager
def noting_pipelines() -> Iterator[None]:
    """Note all pipelines that are created within."""
    token = _made.set([])
    try:
        yield
    finally:
        _made.reset(token)


def note(node: Node) -> None:
    """Note a pipeline by its newest node, if they are noted."""
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
