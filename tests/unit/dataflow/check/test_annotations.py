"""Annotations of neighbours: refused only if no event could be both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import pytest

import wallaroo
from tests.unit.dataflow.check.test_checks import SINK, only, tcp
from wallaroo.serdes import Json


class Base:
    """A class of events."""


@dataclass
class Derived(Base):
    """A more special one."""

    number: int = 0


class Row(TypedDict):
    """A dict."""

    id: int


class Other:
    """A class that has nothing to do with them."""


class Sized(Protocol):
    """A protocol, which no class has to name."""

    def size(self) -> int:
        """Return a size."""


def step(taken: Any, returned: Any) -> Any:
    def function(event: Any) -> Any:
        return event

    function.__annotations__ = {"event": taken, "return": returned}
    return wallaroo.computation(f"{taken} to {returned}")(function)


def of_two(first: Any, second: Any) -> Any:
    """Return a pipeline in which one step returns ``first`` and the next takes ``second``."""
    return tcp("in").to(step(str, first)).to(step(second, str)).to_sink(SINK)


@pytest.mark.parametrize(
    ("returned", "taken"),
    [(Base, Other), (Base, dict), (str, bytes), (Base | None, dict), (float, int), (list, "dict")],
)
def test_classes_that_share_no_object_are_refused(returned: Any, taken: Any) -> None:
    problem = only(of_two(returned, taken))
    assert "Its function takes" in problem.what
    assert "returns" in problem.what
    assert problem.place


@pytest.mark.parametrize(
    ("returned", "taken"),
    [
        (Base, Base),
        (Derived, Base),
        (Base, Derived),  # it may be one
        (int, float),
        (bool, int),
        (dict, Mapping),
        (Base, Any),
        (Any, Base),
        (object, Base),
        (Base, Sized),
        (Base | Other, dict),
        (list[int], dict),
        (Base, "NoSuchClass"),
        (Callable[[], int], Base),
    ],
)
def test_classes_that_may_meet_are_accepted(returned: Any, taken: Any) -> None:
    wallaroo.build_application("app", of_two(returned, taken))


@pytest.mark.parametrize(
    ("decoder", "taken", "returned"),
    [(Json(Derived).decoder, dict, "Derived"), (Json(Row).decoder, Base, "dict")],
)
def test_the_class_that_a_serde_creates_is_compared_with_an_annotation(
    decoder: Any, taken: Any, returned: str
) -> None:
    config = wallaroo.FileSourceConfig("in", "in.txt", decoder)
    problem = only(wallaroo.source("in", config).to(step(taken, str)).to_sink(SINK))
    assert f"takes {taken.__name__}, and decoder 'decode json " in problem.what
    assert problem.what.endswith(f"returns {returned}.")


@pytest.mark.parametrize("kind", [None, dict, Row, dict[str, int], int | str])
def test_events_whose_class_is_open_may_be_anything(kind: Any) -> None:
    @wallaroo.computation
    def read(event):  # type: ignore[no-untyped-def]
        return event["id"]

    config = wallaroo.FileSourceConfig("in", "in.txt", Json(kind).decoder)
    wallaroo.build_application("app", wallaroo.source("in", config).to(read).to_sink(SINK))


def test_the_class_is_compared_through_steps_that_pass_events_on() -> None:
    pipeline = tcp("in").to(step(str, Base)).filter(lambda event: True).peek(lambda event: None)
    assert "takes dict" in only(pipeline.to(step(dict, str)).to_sink(SINK)).what


def test_what_the_decoder_returns_is_compared_with_the_first_step() -> None:
    problem = only(tcp("in").to(step(dict, str)).to_sink(SINK))
    assert problem.what == "Its function takes dict, and decoder 'decode' returns str."
