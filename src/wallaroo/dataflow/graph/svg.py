"""A graph as SVG, for notebooks.

Boxes are drawn from left to right, shuffles as dashed arrows.  The result is text only: no program
and no script is needed to see it.  Unfinished and invalid graphs are drawn as well, to help while
building one.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from wallaroo.dataflow.graph import nodes
from wallaroo.dataflow.graph.render import label_of
from wallaroo.dataflow.graph.walk import (
    idle_key_bys,
    is_shuffled,
    is_state_step,
    meetings,
    upstreams,
    walk,
)

WIDTH = 172
HEIGHT = 46
GAP_ALONG = 56
GAP_ACROSS = 20
MARGIN = 6
CHARS = 24  # per line in a box
COLORS = {
    "source": "#2f9e44",
    "step": "#868e96",
    "state": "#4263eb",
    "key": "#f08c00",
    "sink": "#9c36b5",
}
STYLE = (
    "font-family:system-ui,sans-serif;font-size:12px;color:light-dark(#212529,#e9ecef);"
    "max-width:100%;height:auto"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Box:
    kind: str  # one of COLORS
    name: str
    text: str  # below the name
    layer: int


@dataclass(frozen=True, slots=True)
class _Arrow:
    before: _Box
    after: _Box
    is_shuffle: bool
    label: str
    bends: tuple[_Box, ...]  # its positions in the layers between, each the size of a box


def svg(root: nodes.Node, name: str = "pipeline") -> str:
    """Draw the graph up to a node."""
    boxes, arrows = _boxes_and_arrows(root)
    places = _places(boxes, arrows)
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    height = max(y for _, y in places.values()) + HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" style="{STYLE}">',
        f"<title>{escape(name)}</title>",
        '<defs><marker id="wallaroo-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker></defs>',
        *(_arrow(arrow, places) for arrow in arrows),
        *(_box(box, *places[box]) for box in boxes),
        "</svg>",
    ]
    return "".join(parts)


def _boxes_and_arrows(root: nodes.Node) -> tuple[list[_Box], list[_Arrow]]:
    idle = idle_key_bys(root)
    meeting = meetings(root)
    boxes: list[_Box] = []
    arrows: list[_Arrow] = []
    of_node: dict[nodes.Node, _Box] = {}
    for node in walk(root):
        if isinstance(node, nodes.EndsNode):
            continue
        if isinstance(node, nodes.SideNode):
            of_node[node] = of_node[node.upstream]
            continue
        above = upstreams(node)
        layer = 1 + max((of_node[each].layer for each in above), default=-1)
        for kind, title, text in _titles(node):
            box = _Box(kind, title, text, layer)
            boxes.append(box)
            of_node[node] = box
            for each in above:
                label = str(each.is_true).lower() if isinstance(each, nodes.SideNode) else ""
                before = of_node[each]
                between = range(before.layer + 1, layer)
                bends = tuple(_Box("bend", "", "", passed) for passed in between)
                is_shuffle = is_shuffled(each, node, idle, meeting)
                arrows.append(_Arrow(before, box, is_shuffle, label, bends))
    return boxes, arrows


def _titles(node: nodes.Node) -> list[tuple[str, str, str]]:
    """Return kind, name and text of a node's boxes: one, or one for each sink."""
    match node:
        case nodes.SourceNode():
            return [("source", node.name, label_of(node.config))]
        case nodes.SinkNode():
            return [("sink", label_of(config), _name(config, "encoder")) for config in node.sinks]
        case nodes.StepNode():
            kind = "state" if is_state_step(node) else "step"
            return [(kind, _name(node, "step"), str(getattr(node.step, "kind", "step")))]
        case nodes.KeyByNode():
            return [("key", _name(node, "extractor"), "key_by")]
        case nodes.BranchNode():
            return [("step", _name(node, "step"), "branch")]
        case nodes.CollectNode():
            return [("key", "collect", "one key for all")]
        case nodes.MergeNode():
            return [("step", "merge", "")]
    raise TypeError(f"a {type(node).__name__} has no box")


def _name(thing: Any, part: str) -> str:
    """Return the name of a part that may be missing or of the wrong type."""
    step = getattr(thing, part, None)
    found = getattr(step, "step_name", None) or getattr(step, "__name__", None)
    return str(found) if found else ""


def _places(boxes: list[_Box], arrows: list[_Arrow]) -> dict[_Box, tuple[int, int]]:
    """Place the boxes in layers from left to right, each near the boxes before it."""
    layers: dict[int, list[_Box]] = {}
    before: dict[_Box, list[_Box]] = {box: [] for box in boxes}
    for arrow in arrows:
        way = [arrow.before, *arrow.bends, arrow.after]
        for one, following in pairwise(way):
            before.setdefault(following, []).append(one)
    for box in before:
        layers.setdefault(box.layer, []).append(box)
    rows: dict[_Box, float] = {}

    def middle_before(box: _Box) -> float:
        found = [rows[each] for each in before[box]]
        return sum(found) / len(found) if found else 0.0

    for layer in sorted(layers):
        own = sorted(layers[layer], key=middle_before)
        for place, box in enumerate(own):
            rows[box] = place - (len(own) - 1) / 2
    top = min(rows.values(), default=0.0)
    return {
        box: (
            MARGIN + box.layer * (WIDTH + GAP_ALONG),
            MARGIN + round((row - top) * (HEIGHT + GAP_ACROSS)),
        )
        for box, row in rows.items()
    }


def _box(box: _Box, x: int, y: int) -> str:
    whole = escape(f"{box.name} ({box.text})" if box.text else box.name)
    middle = y + HEIGHT // 2
    first = middle - 3 if box.text else middle + 4
    text = f'<text x="{x + 12}" y="{first}" fill="currentColor">{_cut(box.name)}</text>'
    if box.text:
        text += (
            f'<text x="{x + 12}" y="{middle + 13}" fill="currentColor" opacity=".65" '
            f'font-size="10">{_cut(box.text)}</text>'
        )
    return (
        f'<g><title>{whole}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="7" '
        f'fill="{COLORS[box.kind]}" fill-opacity=".12" stroke="{COLORS[box.kind]}" '
        f'stroke-width="{2 if box.kind == "state" else 1}"/>{text}</g>'
    )


def _cut(text: str) -> str:
    return escape(text if len(text) <= CHARS else f"{text[: CHARS - 1]}…")


def _arrow(arrow: _Arrow, places: dict[_Box, tuple[int, int]]) -> str:
    way = [places[box] for box in (arrow.before, *arrow.bends, arrow.after)]
    middles = [(x, y + HEIGHT // 2) for x, y in way]
    first = middles[0]
    second, second_y = middles[1]
    path = f"M{first[0] + WIDTH} {first[1]}"
    for (x, y), (end, end_y) in pairwise(middles):
        turn = (x + WIDTH + end) // 2
        path += f"H{x + WIDTH}C{turn} {y} {turn} {end_y} {end} {end_y}"
    dashes = ' stroke-dasharray="5 4" stroke-width="2"' if arrow.is_shuffle else ""
    line = (
        f'<path d="{path}" fill="none" stroke="currentColor" opacity=".7"{dashes} '
        'marker-end="url(#wallaroo-arrow)"/>'
    )
    if not arrow.label:
        return line
    turn = (first[0] + WIDTH + second) // 2
    place = f'x="{turn}" y="{(first[1] + second_y) // 2 - 6}" text-anchor="middle"'
    return f'{line}<text {place} fill="currentColor" font-size="10">{arrow.label}</text>'
