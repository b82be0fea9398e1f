"""Annotations of neighbours: refused only if no event could be both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pytest

import wallaroo
from tests.unit.dataflow.check.test_checks import SINK, only, tcp


class Base:
    """A class of events."""


class Derived(Base):
    """A more special one."""


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


def test_the_class_is_compared_through_steps_that_pass_events_on() -> None:
    pipeline = tcp("in").to(step(str, Base)).filter(lambda event: True).peek(lambda event: None)
    assert "takes dict" in only(pipeline.to(step(dict, str)).to_sink(SINK)).what


def test_what_the_decoder_returns_is_compared_with_the_first_step() -> None:
    problem = only(tcp("in").to(step(dict, str)).to_sink(SINK))
    assert problem.what == "Its function takes dict, and decoder 'decode' returns str."
