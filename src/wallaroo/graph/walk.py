"""Walking a graph: upstreams, an order with sources first, and which shuffles the graph really
needs.

Where it runs: pure.  A graph is a tree of merges with the newest node as root; walks are loops, so
that a long pipeline is no deep recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wallaroo.graph.nodes import (
    CollectNode,
    KeyByNode,
    MergeNode,
    Node,
    SinkNode,
    SourceNode,
    StepNode,
)


def upstreams(node: Node) -> tuple[Node, ...]:
    """The nodes directly before ``node``."""
    if isinstance(node, SourceNode):
        return ()
    if isinstance(node, MergeNode):
        return (node.left, node.right)
    return (node.upstream,)


def walk(root: Node) -> Iterator[Node]:
    """Every node, each after its upstreams, left before right; a node used twice comes twice."""
    todo: list[tuple[Node, bool]] = [(root, False)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            yield node
            continue
        todo.append((node, True))
        todo.extend((upstream, False) for upstream in reversed(upstreams(node)))


def is_state_step(node: Node) -> bool:
    """Whether the node is a step with state."""
    return isinstance(node, StepNode) and bool(getattr(node.step, "is_stateful", False))


def keyed_nodes(root: Node) -> frozenset[Node]:
    """Nodes after which every event has a key that ``key_by`` or ``collect`` gave it."""
    keyed: set[Node] = set()
    for node in walk(root):
        above = upstreams(node)
        if isinstance(node, KeyByNode | CollectNode) or (above and keyed.issuperset(above)):
            keyed.add(node)
    return frozenset(keyed)


def ends_in_key(node: Node) -> bool:
    """Whether nothing comes after the node's ``key_by`` or ``collect``, on any side of its
    merges.
    """
    todo = [node]
    while todo:
        here = todo.pop()
        if isinstance(here, MergeNode):
            todo += upstreams(here)
        elif not isinstance(here, KeyByNode | CollectNode):
            return False
    return True


def idle_key_bys(root: Node) -> dict[KeyByNode, str]:
    """The ``key_by`` nodes that need no shuffle, each with the reason, as a clause.

    A key matters to state steps only.  Where none is between a ``key_by`` and the next one (or
    a ``collect``, or the sinks), nothing ever sees the key.  ``collect`` is never idle: it brings
    everything to one place, in one order.
    """
    idle: dict[KeyByNode, str] = {}
    todo: list[tuple[Node, str]] = [(root, "no state step comes after it")]
    while todo:
        # reason: why a key would be idle here; empty if a state step needs it
        node, reason = todo.pop()
        if isinstance(node, KeyByNode):
            if reason:
                idle[node] = reason
            reason = f"key_by '{_name(node.extractor)}' follows before any state step"
        elif isinstance(node, CollectNode):
            reason = "collect() follows before any state step"
        elif is_state_step(node):
            reason = ""
        todo.extend((upstream, reason) for upstream in upstreams(node))
    return idle


def is_meeting(node: Node) -> bool:
    """Whether keyed streams, merged after the steps that follow their ``key_by``, must meet in one
    place for this state step.
    """
    if not is_state_step(node):
        return False
    here = upstreams(node)[0]
    while isinstance(here, StepNode) and not is_state_step(here):
        here = here.upstream
    return isinstance(here, MergeNode) and not ends_in_key(here)


def _name(extractor: Any) -> str:
    return str(getattr(extractor, "step_name", extractor))


def sources_of(root: Node) -> tuple[SourceNode, ...]:
    """All sources, left to right."""
    return tuple(node for node in walk(root) if isinstance(node, SourceNode))


def sink_of(root: Node) -> SinkNode:
    """The closed graph's last node.  Raises TypeError for an open one."""
    if not isinstance(root, SinkNode):
        raise TypeError(f"not a closed graph: it ends in {type(root).__name__}")
    return root
