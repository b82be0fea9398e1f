"""Walks of a graph: upstreams, order, and necessary shuffles.

A graph has no cycles: its newest node is the root, and a node may be the upstream of several.
Walks are loops, so that a long pipeline causes no deep recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wallaroo.dataflow.graph.nodes import (
    CollectNode,
    EndsNode,
    KeyByNode,
    MergeNode,
    Node,
    SinkNode,
    SourceNode,
    StepNode,
)


def upstreams(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly before ``node``."""
    match node:
        case SourceNode():
            return ()
        case MergeNode():
            return (node.left, node.right)
        case EndsNode():
            return node.ends
    return (node.upstream,)


def walk(root: Node) -> Iterator[Node]:
    """Yield every node once, each after its upstreams, left before right."""
    seen: set[Node] = set()
    todo: list[tuple[Node, bool]] = [(root, False)]
    while todo:
        node, is_ready = todo.pop()
        if is_ready:
            yield node
        elif node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo.extend((upstream, False) for upstream in reversed(upstreams(node)))


def consumers_of(root: Node) -> dict[Node, list[Node]]:
    """Return the nodes directly after each node, twice if they consume it twice."""
    found: dict[Node, list[Node]] = {node: [] for node in walk(root)}
    for node in list(found):
        for upstream in upstreams(node):
            found[upstream].append(node)
    return found


def is_state_step(node: Node) -> bool:
    """Return whether the node is a step that needs a key, with state or without."""
    if not isinstance(node, StepNode):
        return False
    return any(getattr(node.step, trait, False) for trait in ("is_stateful", "needs_key"))


def keyed_nodes(root: Node) -> frozenset[Node]:
    """Return the nodes after which every event has a key from ``key_by`` or ``collect``."""
    keyed: set[Node] = set()
    for node in walk(root):
        above = upstreams(node)
        if isinstance(node, KeyByNode | CollectNode) or (above and keyed.issuperset(above)):
            keyed.add(node)
    return frozenset(keyed)


def ends_in_key(node: Node) -> bool:
    """Return whether every merged side ends in its ``key_by`` or ``collect``."""
    todo = [node]
    while todo:
        here = todo.pop()
        if isinstance(here, MergeNode):
            todo += upstreams(here)
        elif not isinstance(here, KeyByNode | CollectNode):
            return False
    return True


def idle_key_bys(root: Node) -> dict[KeyByNode, str]:
    """Return the ``key_by`` nodes that need no shuffle, each with the reason as a clause.

    A key matters to state steps only.  If none is between a ``key_by`` and the next one (or a
    ``collect``, or the sinks), the key is never used.  ``collect`` is never idle: it brings
    everything into one task, in one order.
    """
    # why a key would be idle before a node; empty if a state step needs it
    reasons: dict[Node, str] = {}
    after = consumers_of(root)
    idle: dict[KeyByNode, str] = {}
    for node in reversed(list(walk(root))):
        following = [reasons[consumer] for consumer in after[node]]
        reason = following[0] if following else "no state step comes after it"
        if not all(following):
            reason = ""
        if isinstance(node, KeyByNode):
            if reason:
                idle[node] = reason
            reason = f"key_by '{_name(node.extractor)}' follows before any state step"
        elif isinstance(node, CollectNode):
            reason = "collect() follows before any state step"
        elif is_state_step(node):
            reason = ""
        reasons[node] = reason
    return idle


def meetings(root: Node) -> frozenset[Node]:
    """Return the state steps at which keyed streams from different shuffles meet.

    Each event is sent to one task by its existing key. Branches of one stream need no shuffle: they
    are still in the same task.
    """
    steps: set[Node] = set()
    origins: dict[Node, frozenset[Node]] = {}  # the shuffles, or sources, that a stream came from
    for node in walk(root):
        above = frozenset[Node]().union(*(origins[each] for each in upstreams(node)))
        if isinstance(node, SourceNode | KeyByNode | CollectNode) or (
            isinstance(node, MergeNode) and ends_in_key(node)
        ):
            above = frozenset([node])
        elif is_state_step(node) and len(above) > 1:
            steps.add(node)
            above = frozenset([node])
        origins[node] = above
    return frozenset(steps)


def _name(extractor: Any) -> str:
    return str(getattr(extractor, "step_name", extractor))


def sinks_of(root: Node) -> tuple[SinkNode, ...]:
    """Return the closed graph's sinks in their order.  Raises TypeError for an open one."""
    ends = root.ends if isinstance(root, EndsNode) else (root,)
    found = tuple(end for end in ends if isinstance(end, SinkNode))
    if len(found) < len(ends):
        is_open = next(end for end in ends if not isinstance(end, SinkNode))
        raise TypeError(f"not a closed graph: it ends in {type(is_open).__name__}")
    return found


def is_shuffled(
    upstream: Node, node: Node, idle: dict[KeyByNode, str], meeting: frozenset[Node]
) -> bool:
    """Return whether events are shuffled between two nodes; ``meeting`` is ``meetings(root)``."""
    return (
        node in meeting
        or isinstance(upstream, CollectNode)
        or (isinstance(upstream, KeyByNode) and upstream not in idle)
    )
