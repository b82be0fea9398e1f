"""Rules about the graph's shape: sinks, branches, merges, keyed state."""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.dataflow.check.kinds import described
from wallaroo.dataflow.check.subject import Subject, problem_at, title_of
from wallaroo.dataflow.graph import nodes
from wallaroo.dataflow.graph.walk import ends_in_key, is_state_step, keyed_nodes, upstreams, walk
from wallaroo.errors import Problem
from wallaroo.steps.kinds import Branch


def ends_in_a_sink(subject: Subject) -> Iterator[Problem]:
    """Require pipelines to end in a sink: an open one's results would be lost."""
    ends = subject.root.ends if isinstance(subject.root, nodes.EndsNode) else (subject.root,)
    for number, end in enumerate(ends, 1):
        which = "The pipeline" if len(ends) == 1 else f"Pipeline {number} of {len(ends)}"
        if not isinstance(end, nodes.SinkNode):
            what = f"{which} is open: it ends in {title_of(end)}."
            yield subject.problem(what, "End it with to_sink() or to_sinks().")
        elif end in ends[: number - 1]:
            what = f"{which} was given before (it ends at {end.place})."
            yield subject.problem(what, "Give each pipeline once.")


def branches_lead_somewhere(subject: Subject) -> Iterator[Problem]:
    """Require pipelines on both sides of a branch: otherwise events would be lost silently."""
    for node in subject.of(nodes.BranchNode):
        sides = [side for side in subject.after[node] if isinstance(side, nodes.SideNode)]
        if len(sides) == 1:
            lost = "false" if sides[0].is_true else "true"
            what = (
                f"The events for which it is {lost} go nowhere: no pipeline that was given to "
                f"build_application() continues from that side."
            )
            fix = (
                "End that side in a sink, too, and give both pipelines: build_application(name, "
                "first, second); or drop its events with filter()."
            )
            yield problem_at(node, what, fix)


def branches_have_predicates(subject: Subject) -> Iterator[Problem]:
    """Require functions of one event in ``branch``."""
    for node in subject.of(nodes.BranchNode):
        if not isinstance(node.step, Branch):
            what = f"branch() was given {described(node.step)} instead of a function."
            fix = "Give it a plain function of one event that returns what is true or false."
            yield problem_at(node, what, fix)


def nothing_after_a_sink(subject: Subject) -> Iterator[Problem]:
    """Reject steps and merges after a sink."""
    for node in subject.nodes:
        for upstream in upstreams(node):
            if not isinstance(upstream, nodes.SinkNode) or isinstance(node, nodes.EndsNode):
                continue
            if isinstance(node, nodes.MergeNode):
                what = f"One side is closed: it ended in a sink at {upstream.place}."
                yield problem_at(node, what, "Merge first, then call to_sink() once.")
            else:
                what = f"It comes after a sink ({upstream.place}), where no event arrives."
                yield problem_at(
                    node,
                    what,
                    "Put it in front of to_sink(); for several sinks use to_sinks([...]).",
                )


def has_sinks(subject: Subject) -> Iterator[Problem]:
    """Reject empty lists of sinks: the pipeline would be open."""
    for node in subject.of(nodes.SinkNode):
        if not node.sinks:
            yield Problem(
                "to_sinks()",
                node.place,
                "The list of sinks is empty.",
                "Give it at least one sink configuration.",
            )


def merges_are_alike(subject: Subject) -> Iterator[Problem]:
    """Require merges whose sides all end in ``key_by`` or none, to keep their keys."""
    for node in subject.of(nodes.MergeNode):
        left = ends_in_key(node.left)
        right = ends_in_key(node.right)
        if left != right:
            keyed, other = (node.left, node.right) if left else (node.right, node.left)
            what = (
                f"One side ends in {_key_title(keyed)}, the other in {title_of(other)}: unlike "
                f"pipelines do not merge."
            )
            yield problem_at(node, what, "Call key_by() after the merge, or last on both sides.")


def _key_title(node: nodes.Node) -> str:
    return next(
        (
            title_of(found)
            for found in walk(node)
            if isinstance(found, nodes.KeyByNode | nodes.CollectNode)
        ),
        title_of(node),
    )


def state_is_keyed(subject: Subject) -> Iterator[Problem]:
    """Require a key for state: without one it would be a hidden global state, on one core."""
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
            yield problem_at(node, what, fix)


def _on_which_side(node: nodes.Node, keyed: frozenset[nodes.Node]) -> str:
    unkeyed = [
        found
        for found in walk(node)
        if isinstance(found, nodes.SourceNode) and not _is_keyed_on_the_way(found, node)
    ]
    has_merge = any(isinstance(found, nodes.MergeNode) for found in walk(node))
    names = ", ".join(f"'{source.name}'" for source in unkeyed)
    return f" on the way from source {names}." if has_merge and unkeyed else "."


def _is_keyed_on_the_way(source: nodes.Node, node: nodes.Node) -> bool:
    """Return whether every path from ``node`` up to ``source`` has a key."""
    todo = [node]
    while todo:
        here = todo.pop()
        if here is source:
            return False
        if not isinstance(here, nodes.KeyByNode | nodes.CollectNode):
            todo += upstreams(here)
    return True
