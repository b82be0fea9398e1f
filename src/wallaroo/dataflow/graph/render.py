"""An application's graph as text and as a Mermaid diagram.

Both show sources, steps, shuffles and sinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from wallaroo.dataflow.graph.nodes import (
    BranchNode,
    CollectNode,
    EndsNode,
    KeyByNode,
    MergeNode,
    Node,
    SideNode,
    SinkNode,
    SourceNode,
    StepNode,
)
from wallaroo.dataflow.graph.walk import (
    consumers_of,
    idle_key_bys,
    is_shuffled,
    meetings,
    upstreams,
    walk,
)


class HasGraph(Protocol):
    """A drawable object: an application."""

    @property
    def name(self) -> str:
        """Return its name."""

    @property
    def root(self) -> Node:
        """Return its newest node."""


SHUFFLE = "   ~~~ shuffle ~~~"
MEETING = "~~~ shuffle, each event by the key it has ~~~"


def text(application: HasGraph) -> str:
    """Draw the graph as text.

    Both sides of every merge are indented, before it; ``~~~`` is a shuffle.  If streams split, the
    graph is drawn as numbered runs of steps.
    """
    root = application.root
    after = consumers_of(root)
    is_branched = any(len(consumers) > 1 for consumers in after.values())
    lines = _runs(root, after) if is_branched or isinstance(root, EndsNode) else _tree(root)
    return "\n".join([application.name, *lines]) + "\n"


def _tree(root: Node) -> Iterator[str]:
    idle = idle_key_bys(root)
    meeting = meetings(root)
    margins = _margins(root)
    for node in walk(root):
        margin = "  " * (1 + margins[node])
        if node in meeting:
            yield f"{margin}{MEETING}"
        yield f"{margin}{_title(node, idle)}"


def _runs(root: Node, after: dict[Node, list[Node]]) -> Iterator[str]:
    """Yield the lines of runs of nodes, each with the numbers of the following runs."""
    idle = idle_key_bys(root)
    meeting = meetings(root)
    nodes = [node for node in walk(root) if not isinstance(node, EndsNode)]
    runs: list[list[Node]] = []
    of_node: dict[Node, int] = {}  # the number of a node's run
    for node in nodes:
        above = upstreams(node)
        if len(above) == 1 and len(after[above[0]]) == 1:
            runs[of_node[above[0]]].append(node)
            of_node[node] = of_node[above[0]]
        else:
            of_node[node] = len(runs)
            runs.append([node])
    width = len(f"{len(runs)}. ")
    for number, run in enumerate(runs, 1):
        lines = list(_run_lines(run, idle, meeting))
        following = ", ".join(
            f"{of_node[node] + 1}{_where(node)}"
            for node in after[run[-1]]
            if not isinstance(node, EndsNode)
        )
        if following:
            lines.append(f"-> {following}")
        for place, line in enumerate(lines):
            yield f"  {f'{number}. ' if not place else '':>{width}}{line}"


def _run_lines(
    run: list[Node], idle: dict[KeyByNode, str], meeting: frozenset[Node]
) -> Iterator[str]:
    for node in run:
        if isinstance(node, SideNode):
            which = "true" if node.is_true else "false"
            yield f"where '{node.upstream.step.step_name}' is {which}"
            continue
        if node in meeting:
            yield MEETING
        yield _title(node, idle)


def _where(node: Node) -> str:
    if not isinstance(node, SideNode):
        return ""
    return " where true" if node.is_true else " where false"


def _margins(root: Node) -> dict[Node, int]:
    """Return each node's indentation: the number of merges after it."""
    margins = {root: 0}
    todo = [root]
    while todo:
        node = todo.pop()
        for upstream in upstreams(node):
            margins[upstream] = margins[node] + isinstance(node, MergeNode)
            todo.append(upstream)
    return margins


def _title(node: Node, idle: dict[KeyByNode, str]) -> str:
    match node:
        case SourceNode():
            return (
                f"source '{node.name}' ({label_of(node.config)}), decoder "
                f"'{node.config.decoder.step_name}'"
            )
        case StepNode():
            state = getattr(node.step, "state_class", None)
            return (
                f"to '{node.step.step_name}' "
                f"({node.step.kind}{f', state {state.__qualname__}' if state else ''})"
            )
        case KeyByNode():
            return f"key_by '{node.extractor.step_name}'" + (
                f" (no shuffle: {idle[node]})" if node in idle else SHUFFLE
            )
        case CollectNode():
            return f"collect{SHUFFLE}"
        case MergeNode():
            return "merge"
        case BranchNode():
            return f"branch '{node.step.step_name}'"
        case SinkNode():
            return f"to_{'sink' if len(node.sinks) == 1 else 'sinks'} " + ", ".join(
                map(_sink, node.sinks)
            )
    raise TypeError(f"a {type(node).__name__} has no line of its own")


def label_of(config: Any) -> str:
    """Return the name of a source or sink configuration in drawings."""
    return str(getattr(config, "label", type(config).__name__))


def _sink(config: Any) -> str:
    encoder = getattr(config, "encoder", None)
    return f"({label_of(config)})" + (f", encoder '{encoder.step_name}'" if encoder else "")


def mermaid(application: HasGraph) -> str:
    """Draw a Mermaid flowchart: thick arrows are shuffles, double-edged boxes keep state."""
    root = application.root
    idle = idle_key_bys(root)
    meeting = meetings(root)
    lines = ["flowchart LR"]
    ids: dict[Node, str] = {}

    def arrow(upstream: Node, node: Node) -> str:
        line = "==>" if is_shuffled(upstream, node, idle, meeting) else "-->"
        return f"{line}|{upstream.is_true}|".lower() if isinstance(upstream, SideNode) else line

    for node in walk(root):
        match node:
            case EndsNode():
                pass
            case SideNode():
                ids[node] = ids[node.upstream]
            case SinkNode():
                ids[node] = f"n{len(ids)}"
                lines += _mermaid_sinks(node, ids, arrow(node.upstream, node))
            case _:
                ids[node] = f"n{len(ids)}"
                lines.append(f"  {ids[node]}{_box(node, idle)}")
                lines += [f"  {ids[up]} {arrow(up, node)} {ids[node]}" for up in upstreams(node)]
    return "\n".join(lines) + "\n"


def _mermaid_sinks(node: SinkNode, ids: dict[Node, str], arrow: str) -> Iterator[str]:
    for number, config in enumerate(node.sinks):
        sink = f"{ids[node]}_{number}"
        yield f'  {sink}[/"{_escaped(label_of(config))}"/]'
        yield f"  {ids[node.upstream]} {arrow} {sink}"


def _box(node: Node, idle: dict[KeyByNode, str]) -> str:
    match node:
        case SourceNode():
            return f'[\\"{_escaped(node.name)}<br>{_escaped(label_of(node.config))}"\\]'
        case StepNode():
            name = _escaped(node.step.step_name)
            state = getattr(node.step, "state_class", None)
            return (
                f'[["{name}<br>state {_escaped(state.__qualname__)}"]]' if state else f'["{name}"]'
            )
        case KeyByNode():
            idle_text = "<br>no shuffle" if node in idle else ""
            return f'{{{{"key_by {_escaped(node.extractor.step_name)}{idle_text}"}}}}'
        case CollectNode():
            return '{{"collect"}}'
        case BranchNode():
            return f'{{"{_escaped(node.step.step_name)}"}}'
        case _:
            return '(("merge"))'


def _escaped(name: str) -> str:
    """Return a name with Mermaid's own escapes: ``#`` first, since it begins them."""
    return (
        name.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    )
