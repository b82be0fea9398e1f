"""The step of ``join``, chosen by its options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.joins.step import IntervalJoin, JoinSpec, JoinUntil, OpenJoin
from wallaroo.steps.kinds import Callback
from wallaroo.steps.times import span_ns
from wallaroo.steps.windows.step import Aggregated

NOT_GIVEN = ...  # `None` has a meaning of its own: `within=None`


def pair_join(
    function: Callable[..., Any],
    name: str,
    on_error: str,
    place: str,
    *,
    within: Any,
    ttl: Any,
    until: Any,
    over: Any,
    how: str,
) -> IntervalJoin[Any]:
    """Return the step; raise WallarooParameterError if its options exclude each other."""
    problem = _problem(within, ttl, until, over)
    if problem:
        raise WallarooParameterError(Problem(f"step '{name}'", place, *problem))
    options = function, name, on_error
    if until is not None:
        aggregated = None if over is None else Aggregated(over)
        until_spec = JoinSpec(None, how, until=Callback(until), over=aggregated)
        return JoinUntil(*options, until_spec, place)
    if within is None:
        return OpenJoin(*options, JoinSpec(None, how, is_open=True, ttl_ns=span_ns(ttl)), place)
    return IntervalJoin(*options, JoinSpec(span_ns(within), how), place)


def _problem(within: Any, ttl: Any, until: Any, over: Any) -> tuple[str, str] | None:
    if within is NOT_GIVEN and until is None:
        what = "Nothing says which events of a key meet."
        fix = "Write within=wallaroo.seconds(10), until=..., or within=None: all of them."
        return what, fix
    if until is not None and (ttl is not None or within is not NOT_GIVEN):
        other = "within" if ttl is None else "ttl"
        return f"until and {other} exclude each other.", f"Leave out {other}."
    if ttl is not None and within is not None:
        return (
            "ttl goes with within=None.",
            "Leave out ttl: within already limits how long events wait.",
        )
    if over is not None and until is None:
        what = "over goes with until: the time when a left event has met all of its right ones."
        return what, "Write until=lambda event: ..., or leave out over."
    return None
