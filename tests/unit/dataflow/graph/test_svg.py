"""The graph as SVG: well-formed, complete, and drawn for unfinished and wrong graphs, too."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    first_letter,
    shout,
    tcp,
)
from tests.unit.dataflow.graph.test_render import application, is_short, parted

SVG = "{http://www.w3.org/2000/svg}"


def boxes(drawn: str) -> list[str]:
    """The boxes' names and texts."""
    root = ElementTree.fromstring(drawn)
    return [group.find(f"{SVG}title").text or "" for group in root.findall(f"{SVG}g")]  # type: ignore[union-attr]


def arrows(drawn: str) -> list[Any]:
    return ElementTree.fromstring(drawn).findall(f"{SVG}path")


def test_every_source_step_and_sink_has_a_box_and_shuffles_are_dashed() -> None:
    drawn = application()._repr_svg_()

    assert boxes(drawn) == [
        "a (tcp 127.0.0.1:7010)",
        "first_letter (key_by)",
        "shout (computation)",
        "b (tcp 127.0.0.1:7011)",
        "last_letter (key_by)",
        "whisper (computation)",
        "merge",
        "count (state_computation)",
        "collect (one key for all)",
        "stdout (encode)",
        "tcp 127.0.0.1:7002 (encode)",
    ]
    dashed = [arrow for arrow in arrows(drawn) if arrow.get("stroke-dasharray")]
    assert len(arrows(drawn)) == 10
    assert len(dashed) == 5


def test_the_sides_of_a_branch_leave_one_box_and_are_named() -> None:
    drawn = parted()._repr_html_()

    assert boxes(drawn.removeprefix("<div>").removesuffix("</div>")).count("is_short (branch)") == 1
    assert ">true</text>" in drawn
    assert ">false</text>" in drawn


def test_boxes_of_one_layer_do_not_cover_each_other() -> None:
    root = ElementTree.fromstring(parted()._repr_svg_())
    places = [(each.get("x"), each.get("y")) for each in root.iter(f"{SVG}rect")]
    assert len(places) == len(set(places))


def test_an_open_pipeline_and_one_with_a_mistake_are_drawn() -> None:
    wrong: Any = tcp("in").key_by(first_letter)
    short, _ = wrong.to(count).branch(is_short)

    assert boxes(short._repr_svg_())[-1] == "is_short (branch)"
    assert boxes(wrong.to(len)._repr_svg_())[-1] == "len (step)"
    assert boxes(wrong.to(7)._repr_svg_())[-1] == " (step)"


def test_names_cannot_break_the_drawing() -> None:
    named = tcp("in").map(str, name="<script>&\"'" + "x" * 40).to(shout)
    drawn = wallaroo.build_application("<&>", named.to_sink(SINK))._repr_svg_()

    assert "<script>" not in drawn
    assert ElementTree.fromstring(drawn).find(f"{SVG}title").text == "<&>"  # type: ignore[union-attr]
