"""Notes of a checkpoint's joins: sides and kinds.

A side is identified by the sources whose events reach it; if these are the same for both sides,
also by the steps on the way.  More sources or other steps on a side are allowed: waiting events
keep their meaning unless a source or step is on the other side now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from wallaroo.dataflow.plan import model
from wallaroo.steps.joins.step import Dedupe

SIDES = ("left", "right")


def noted_joins(plan: model.Plan) -> dict[str, dict[str, Any]]:
    """Return the notes of each step that matches events, by name."""
    noted = {}
    for stage in plan.stages:
        for step in stage.steps:
            spec = getattr(step, "spec", None)
            how = getattr(spec, "how", None)
            if how is None:
                continue
            sides: dict[str, Any] = {
                SIDES[number]: names for number, names in _sides(plan, stage).items()
            }
            span = getattr(spec, "within_ns", None)
            if isinstance(step, Dedupe):
                sides["by"] = getattr(step.function, "__name__", "")
            noted[step.step_name] = {"kind": step.kind, "how": how, "span_ns": span, **sides}
    return noted


def _sides(plan: model.Plan, join: model.Stage) -> dict[int, dict[str, list[str]]]:
    """Return the sources and steps in front of each side of a join at the head of a stage."""
    sides: dict[int, dict[str, set[str]]] = {}
    for stage in plan.stages:
        if not isinstance(stage.exit, model.ToExchange) or stage.exit.stage != join.id:
            continue
        for side in [stage.exit.side] if stage.exit.side is not None else _said(plan, stage):
            _gather(plan, stage, sides.setdefault(side, {"sources": set(), "steps": set()}), set())
    return {
        side: {part: sorted(names) for part, names in found.items()}
        for side, found in sides.items()
    }


def _said(plan: model.Plan, stage: model.Stage) -> Iterator[int]:
    """Yield the sides that a stage's last mark, or those of the stages before its branch, set."""
    said = [step.side for step in stage.steps if step.side is not None]
    if said:
        yield said[-1]
    elif isinstance(stage.entry, model.BranchEntry):
        for parent in stage.entry.stages:
            yield from _said(plan, plan.stages[parent])


def _gather(
    plan: model.Plan, stage: model.Stage, found: dict[str, set[str]], seen: set[int]
) -> None:
    """Add the sources and steps of a stage, and of all stages before it."""
    if stage.id in seen:
        return
    seen.add(stage.id)
    found["steps"].update(step.step_name for step in stage.steps if step.side is None)
    if isinstance(stage.exit, model.ToExchange) and (last := model.last_step_of(stage)) is not None:
        found["steps"].add(last.step_name)
    if isinstance(stage.entry, model.SourceEntry):
        found["sources"].add(plan.sources[stage.entry.source].config.name)
        return
    parents = stage.entry.stages if isinstance(stage.entry, model.BranchEntry) else ()
    for before in plan.stages:
        leave = before.exit
        is_before = isinstance(leave, model.ToExchange) and leave.stage == stage.id
        if before.id in parents or is_before:
            _gather(plan, before, found, seen)


def refused_joins(
    before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield joins whose waiting events would change their meaning, each with a sentence."""
    for name, was in before.items():
        now = after.get(name)
        if now is None:
            continue
        if was["kind"] != now["kind"]:
            what = f"was a step of kind {was['kind']} and is one of kind {now['kind']} now"
        elif was["how"] != now["how"]:
            what = f"joined with how='{was['how']}' and joins with how='{now['how']}' now"
        elif moved := _moved(was, now):
            what = f"has {moved} on its other side now"
        else:
            continue
        yield (
            name,
            f"Step '{name}' {what}, and events wait in it. Undo that, or give the step another "
            f"name.",
        )


def _moved(was: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the parts that moved from one side to the other; nothing if all are in place."""
    if not all(side in each for side in SIDES for each in (was, now)):
        return ""
    for part, noun in (("sources", "source"), ("steps", "step")):
        old_left, old_right = (set(was[side][part]) for side in SIDES)
        new_left, new_right = (set(now[side][part]) for side in SIDES)
        crossed = ((old_left - old_right) & (new_right - new_left)) | (
            (old_right - old_left) & (new_left - new_right)
        )
        if crossed:
            return f"{noun} {', '.join(map(repr, sorted(crossed)))}"
        if old_left != old_right:
            return ""
    return ""


def changed_joins(
    before: Mapping[str, dict[str, Any]], after: Mapping[str, dict[str, Any]]
) -> Iterator[str]:
    """Yield a sentence for each join with another span, or ``dedupe`` by another function."""
    for name, was in before.items():
        now = after.get(name)
        if now is None:
            continue
        by = now.get("by")
        if was.get("by", by) != by:
            yield (
                f"Step '{name}' compares events by '{by}' instead of '{was['by']}': what it keeps "
                f"was returned by the former function, and is compared with what the new one "
                f"returns."
            )
        if was["span_ns"] != now["span_ns"]:
            yield (
                f"Step '{name}' has the span {_span(now['span_ns'])} instead of "
                f"{_span(was['span_ns'])}: it counts for what waits, too; what was let go is gone."
            )


def _span(span_ns: int | None) -> str:
    return "of any age" if span_ns is None else f"{span_ns / 1e9:g} s"
