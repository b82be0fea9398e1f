"""Rules about the graph's shape: it ends in a sink, once; what is merged is alike; state is keyed.

Where it runs: pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wallaroo.check.subject import Subject, title_of
from wallaroo.errors import Problem
from wallaroo.graph.nodes import CollectNode, KeyByNode, MergeNode, Node, SinkNode, SourceNode
from wallaroo.graph.walk import ends_in_key, is_state_step, keyed_nodes, upstreams, walk


def ends_in_a_sink(subject: Subject) -> Iterator[Problem]:
    """An open pipeline's results would go nowhere."""
    if not isinstance(subject.root, SinkNode):
        last = title_of(subject.root)
        yield Problem(
            subject.title,
            subject.place,
            f"The pipeline is open: it ends in {last}.",
            "End it with to_sink() or to_sinks().",
        )


def nothing_behind_a_sink(subject: Subject) -> Iterator[Problem]:
    """A sink is the end."""
    for node in subject.nodes:
        for upstream in upstreams(node):
            if not isinstance(upstream, SinkNode):
                continue
            if isinstance(node, MergeNode):
                what = f"One side is closed: it ended in a sink at {upstream.place}."
                yield Problem(
                    title_of(node), node.place, what, "Merge first, then call to_sink() once."
                )
            else:
                what = f"It comes after a sink ({upstream.place}), where no event arrives."
                yield Problem(
                    title_of(node),
                    node.place,
                    what,
                    "Put it in front of to_sink(); for several sinks use to_sinks([...]).",
                )


def has_sinks(subject: Subject) -> Iterator[Problem]:
    """An empty list of sinks is an open pipeline in disguise."""
    for node in subject.of(SinkNode):
        if not node.sinks:
            yield Problem(
                "to_sinks()",
                node.place,
                "The list of sinks is empty.",
                "Give it at least one sink configuration.",
            )


def merges_are_alike(subject: Subject) -> Iterator[Problem]:
    """One side fresh from ``key_by`` and the other not: the key would be lost or missing."""
    for node in subject.of(MergeNode):
        left = ends_in_key(node.left)
        right = ends_in_key(node.right)
        if left != right:
            keyed, other = (node.left, node.right) if left else (node.right, node.left)
            what = (
                f"One side ends in {_key_title(keyed)}, the other in {title_of(other)}: unlike "
                f"pipelines do not merge."
            )
            yield Problem(
                title_of(node),
                node.place,
                what,
                "Call key_by() after the merge, or last on both sides.",
            )


def _key_title(node: Node) -> str:
    return next(
        (title_of(found) for found in walk(node) if isinstance(found, KeyByNode | CollectNode)),
        title_of(node),
    )


def state_is_keyed(subject: Subject) -> Iterator[Problem]:
    """State without a key would be one hidden global state, on one core."""
    keyed = keyed_nodes(subject.root)
    for node in subject.nodes:
        if is_state_step(node) and node not in keyed:
            what = "It keeps state, and no key_by() or collect() comes before it" + _on_which_side(
                node, keyed
            )
            fix = (
                "Put key_by(your_key_extractor) there for one state per key, or collect() for "
                "one state of all events."
            )
            yield Problem(title_of(node), node.place, what, fix)


def _on_which_side(node: Node, keyed: frozenset[Node]) -> str:
    unkeyed = [
        found
        for found in walk(node)
        if isinstance(found, SourceNode) and not _is_keyed_on_the_way(found, node)
    ]
    has_merge = any(isinstance(found, MergeNode) for found in walk(node))
    names = ", ".join(f"'{source.name}'" for source in unkeyed)
    return f" on the way from source {names}." if has_merge and unkeyed else "."


def _is_keyed_on_the_way(source: Node, node: Node) -> bool:
    """Whether every way from ``node`` up to ``source`` meets a key."""
    todo = [node]
    while todo:
        here = todo.pop()
        if here is source:
            return False
        if not isinstance(here, KeyByNode | CollectNode):
            todo += upstreams(here)
    return True


def streams_are_not_split(subject: Subject) -> Iterator[Problem]:
    """A pipeline used twice would read its source twice."""
    used = Counter(node for node in walk(subject.root) if isinstance(node, SourceNode))
    for node, times in used.items():
        if times > 1:
            what = (
                f"It is read {times} times: pipelines that start from it are merged, and a "
                f"stream cannot be split."
            )
            fix = (
                "Merge it once; where one event has several results, return them from a "
                "computation_multi."
            )
            yield Problem(title_of(node), node.place, what, fix)
