"""Notes of a plan.json about vectorized state: its dtype's fields.

Stored rows are dicts of fields, read by name for any current dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wallaroo.dataflow.plan.model import Plan

Layouts = Mapping[str, Mapping[str, str]]  # the dtype of each field, by step


def steps_with_layout(plan: Plan) -> dict[str, Any]:
    """Return the steps whose states are rows of a dtype, by name."""
    return {
        step.step_name: step
        for step in plan.steps
        if step.is_stateful and getattr(step, "layout", None) is not None
    }


def noted_layouts(plan: Plan) -> dict[str, dict[str, str]]:
    """Return the note of each step's dtype."""
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
