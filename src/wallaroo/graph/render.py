"""An application's graph as text and as a Mermaid diagram: sources, steps, where it shuffles,
sinks.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from wallaroo.graph.nodes import (
    CollectNode,
    KeyByNode,
    MergeNode,
    Node,
    SinkNode,
    SourceNode,
    StepNode,
)
from wallaroo.graph.walk import idle_key_bys, is_meeting, upstreams, walk


class HasGraph(Protocol):
    """What is drawn: an application."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def root(self) -> Node:
        """Its newest node."""


def text(application: HasGraph) -> str:
    """Draw the graph as text: every merge's two sides are set in, before it; ``~~~`` is a
    shuffle.
    """
    idle = idle_key_bys(application.root)
    lines = [application.name]
    margins = _margins(application.root)
    for node in walk(application.root):
        if is_meeting(node):
            lines.append(
                "  " * (1 + margins[node]) + "~~~ shuffle, each event by the key it has ~~~"
            )
        lines.append("  " * (1 + margins[node]) + _title(node, idle, shuffle="   ~~~ shuffle ~~~"))
    return "\n".join(lines) + "\n"


def _margins(root: Node) -> dict[Node, int]:
    """How far a node is set in: by the number of merges after it."""
    margins = {root: 0}
    todo = [root]
    while todo:
        node = todo.pop()
        for upstream in upstreams(node):
            margins[upstream] = margins[node] + isinstance(node, MergeNode)
            todo.append(upstream)
    return margins


def _title(node: Node, idle: dict[KeyByNode, str], shuffle: str) -> str:
    match node:
        case SourceNode():
            return (
                f"source '{node.name}' ({_label(node.config)}), decoder "
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
                f" (no shuffle: {idle[node]})" if node in idle else shuffle
            )
        case CollectNode():
            return "collect" + shuffle
        case MergeNode():
            return "merge"
        case SinkNode():
            return f"to_{'sink' if len(node.sinks) == 1 else 'sinks'} " + ", ".join(
                map(_sink, node.sinks)
            )


def _label(config: Any) -> str:
    return str(getattr(config, "label", type(config).__name__))


def _sink(config: Any) -> str:
    encoder = getattr(config, "encoder", None)
    return f"({_label(config)})" + (f", encoder '{encoder.step_name}'" if encoder else "")


def mermaid(application: HasGraph) -> str:
    """Draw the graph as a Mermaid flowchart: thick arrows are shuffles, double-edged boxes keep
    state.
    """
    idle = idle_key_bys(application.root)
    lines = ["flowchart LR"]
    ids: dict[Node, str] = {}
    for node in walk(application.root):
        ids[node] = f"n{len(ids)}"
        if isinstance(node, SinkNode):
            lines += _mermaid_sinks(node, ids, _arrow(node.upstream, node, idle))
            continue
        lines.append(f"  {ids[node]}{_box(node, idle)}")
        lines += [f"  {ids[up]} {_arrow(up, node, idle)} {ids[node]}" for up in upstreams(node)]
    return "\n".join(lines) + "\n"


def _mermaid_sinks(node: SinkNode, ids: dict[Node, str], arrow: str) -> Iterator[str]:
    for number, config in enumerate(node.sinks):
        sink = f"{ids[node]}_{number}"
        yield f'  {sink}[/"{_escaped(_label(config))}"/]'
        yield f"  {ids[node.upstream]} {arrow} {sink}"


def _arrow(upstream: Node, node: Node, idle: dict[KeyByNode, str]) -> str:
    is_shuffle = (
        is_meeting(node)
        or isinstance(upstream, CollectNode)
        or (isinstance(upstream, KeyByNode) and upstream not in idle)
    )
    return "==>" if is_shuffle else "-->"


def _box(node: Node, idle: dict[KeyByNode, str]) -> str:
    match node:
        case SourceNode():
            return f'[\\"{_escaped(node.name)}<br>{_escaped(_label(node.config))}"\\]'
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
        case _:
            return '(("merge"))'


def _escaped(name: str) -> str:
    """Mermaid's own escapes: ``#`` first, since it begins them."""
    return (
        name.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    )
