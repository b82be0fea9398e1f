"""Notes in plan.json on state: timers, expiry, and dtypes' fields.

They may change between two runs; the effect on stored state and timers is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from wallaroo.dataflow.plan.model import Plan
from wallaroo.steps.times import shown_span

Notes = Mapping[str, dict[str, Any]]
TIMES = {False: "by the clock", True: "by event time"}


def noted_timing(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return the notes of steps whose state has timers or expires, by step."""
    steps = {step.step_name: step for stage in plan.stages for step in stage.steps}
    timings = {name: getattr(step, "timing", None) for name, step in steps.items()}
    return {
        name: {
            "has_timers": timing.on_timer is not None,
            "ttl_ns": timing.ttl_ns,
            "is_event_time": timing.ttl_is_event_time,
            **({"marks_uses": True} if name in plan.marked_uses else {}),
        }
        for name, timing in timings.items()
        if timing is not None
        and (timing.on_timer is not None or timing.ttl_ns is not None or name in plan.marked_uses)
    }


def with_uses_marked(plan: Plan, before: Notes) -> Plan:
    """Return the plan with the steps that mark times of last use in a checkpoint with these notes.

    These are the steps whose unmarked times in the checkpoint are of the other kind.
    A step without a ``ttl`` keeps its note, so that it may gain one again.
    """
    unmarked = {
        name: was["is_event_time"] != was.get("marks_uses", False) for name, was in before.items()
    }
    steps = (step for stage in plan.stages for step in stage.steps if step.step_name in unmarked)
    marked = (
        step.step_name for step in steps if step.expires_by_event_time != unmarked[step.step_name]
    )
    return replace(plan, marked_uses=frozenset(marked))


def changed_timing(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each common step whose timers or expiry changed.

    An earlier version had no notes: then nothing is known.
    """
    if "timing" not in before:
        return
    for name in sorted(before["states"].keys() & after["states"].keys()):
        was = before["timing"].get(name, {})
        now = after["timing"].get(name, {})
        if was.get("has_timers") and not now.get("has_timers"):
            yield f"Step '{name}' has no on_timer any more: timers that wait are never called."
        yield from _changed_ttl(name, was, now)


def _changed_ttl(name: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    ttl_was = was.get("ttl_ns")
    ttl_now = now.get("ttl_ns")
    if ttl_was == ttl_now is None:
        return
    if ttl_was is None:
        yield (
            f"Step '{name}' has a ttl of {shown_span(ttl_now)} now: it counts from a key's next "
            f"event on, so the state of keys without one stays."
        )
    elif ttl_now is None:
        yield f"Step '{name}' has no ttl any more: no state expires."
    elif was["is_event_time"] != now["is_event_time"]:
        yield (
            f"The state of step '{name}' expired {TIMES[was['is_event_time']]} and expires "
            f"{TIMES[now['is_event_time']]} now: a key's time counts from its next event "
            f"on, without one from the end of its former time on."
        )
    elif ttl_was != ttl_now:
        yield (
            f"Step '{name}' has a ttl of {shown_span(ttl_now)} instead of {shown_span(ttl_was)}: "
            f"it counts from a key's next event on, or from the end of the former one."
        )


Layouts = Mapping[str, Mapping[str, str]]  # the dtype of each field, by step


def steps_with_layout(plan: Plan) -> dict[str, Any]:
    """Return the steps whose states are rows of a dtype, by name."""
    return {
        step.step_name: step
        for step in plan.steps
        if step.is_stateful and getattr(step, "layout", None) is not None
    }


def noted_layouts(plan: Plan) -> dict[str, dict[str, str]]:
    """Return the note of each step's dtype.

    Stored rows are dicts of fields, read by name for any current dtype.
    """
    layouts = {name: step.layout for name, step in steps_with_layout(plan).items()}
    return {
        name: {field: str(layout[field]) for field in layout.names}
        for name, layout in layouts.items()
    }


def changed_layouts(before: Layouts, after: Layouts) -> Iterator[str]:
    """Yield a sentence for each field that is new, gone, or of another dtype."""
    for name in sorted(before.keys() & after.keys()):
        was = before[name]
        now = after[name]
        for field in sorted({*was, *now}):
            if was.get(field) != now.get(field):
                what = _change(was.get(field), now.get(field))
                yield f"State of step '{name}', field '{field}': {what}."


def refused_layouts(before: Layouts, after: Layouts) -> Iterator[tuple[str, str]]:
    """Yield step and reason for each field of integers that is now of times, or was.

    Earlier versions stored nanoseconds as integers: a stored value does not say which it is.
    """
    for name in before.keys() & after.keys():
        for field in sorted(before[name].keys() & after[name].keys()):
            was = before[name][field]
            now = after[name][field]
            if sorted((_is_time(was), _is_time(now))) == [False, True] and "int" in was + now:
                what = f"Field '{field}' of the state of step '{name}' was {was} and is {now}."
                yield name, f"{what} Give the new field another name."


def _is_time(dtype: str) -> bool:
    return dtype.startswith(("datetime64", "timedelta64"))


def _change(was: str | None, now: str | None) -> str:
    if was is None:
        return f"new ({now}), begins with its initial value if a stored row lacks it"
    if now is None:
        return "gone; a stored value is removed at its key's next event"
    return f"was {was} and is {now}; a stored value that {now} does not hold ends the run"
