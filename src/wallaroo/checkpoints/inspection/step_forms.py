"""Readable forms of a key's windows, joins and timers.

The plan beside the checkpoint has each step's kind and the specification of its windows; times are
shown in UTC. An entry that does not fit the plan is shown as stored.
"""

from __future__ import annotations

import ast
import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection import keyed
from wallaroo.checkpoints.inspection.values import DecodedValue, Packed, load_safely, plain, show
from wallaroo.dataflow.plan.join_sides import SIDES
from wallaroo.engine.blocks.keys import Key
from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import PLAN, read_plan
from wallaroo.steps.joins.pair_entries import side_and_time
from wallaroo.steps.windows.entries import AT_END, Slot, unpack_slot
from wallaroo.steps.windows.panes import PANE, Grid
from wallaroo.steps.windows.range_machine import SPANS
from wallaroo.steps.windows.spec import (
    CountWindowSpec,
    RangeWindowSpec,
    SessionWindowSpec,
    WindowSpec,
)

_SPECS = {spec.__name__: spec for spec in (RangeWindowSpec, SessionWindowSpec, CountWindowSpec)}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
PAIR_KINDS = frozenset({"interval join", "join until", "open join"})
_CLOCKS = {"event": "event time", "processing": "the clock"}
Form = dict[str, Any]
Loads = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class StepForms:
    """Kinds of a checkpoint's steps, and specifications of their windows."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    windows: Mapping[str, WindowSpec] = field(default_factory=dict)

    @staticmethod
    def of(root: Path) -> StepForms:
        """Read the plan beside a checkpoint; nothing is known if there is none.

        Raises CheckpointError if it is damaged.
        """
        try:
            plan = json.loads(read_plan(root))
            kinds = {str(name): str(kind) for name, kind in plan["steps"].items()}
            classes = {str(name): str(state["class"]) for name, state in plan["states"].items()}
        except OSError:
            return StepForms()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{root / PLAN} is damaged. Restore it from a backup of the checkpoint, or remove "
                f"it: entries are then shown as they are stored."
            ) from error
        specs = {name: windows_in(noted) for name, noted in classes.items()}
        return StepForms(kinds, {name: spec for name, spec in specs.items() if spec is not None})

    def show(self, entry: keyed.StoredEntry, loads: Loads = load_safely) -> DecodedValue:
        """Return everything that a step keeps for a key as JSON."""
        if not entry.parts:
            return show(loads(entry.raw))
        kind = self.kinds.get(entry.step, "")
        form: Form = {"state": _value(loads(entry.raw))} if entry.raw else {}
        for part in entry.parts:
            for name, items in self._shown_or_raw(entry, kind, part, loads).items():
                if items:
                    form.setdefault(name, []).extend(items)
        return DecodedValue(
            kind, {name: _in_order(items) for name, items in form.items()}, is_keyed=True
        )

    def _shown_or_raw(
        self, entry: keyed.StoredEntry, kind: str, part: keyed.Part, loads: Loads
    ) -> dict[str, list[Form]]:
        try:
            return self._form_of(entry, kind, part, loads)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            return {"entries": [{"name": plain(part.sub), "value": _value(loads(part.raw))}]}

    def _form_of(
        self, entry: keyed.StoredEntry, kind: str, part: keyed.Part, loads: Loads
    ) -> dict[str, list[Form]]:
        if isinstance(part.sub, tuple):
            return {"timers": [_timer(_CLOCKS[str(part.sub[0])], *loads(part.raw))]}
        if kind in PAIR_KINDS and isinstance(part.sub, bytes) and not keyed.is_slot(part.sub):
            return _waiting(part.sub, loads(part.raw), loads)
        if not keyed.is_slot(part.sub):
            raise ValueError("the entry is none of windows, joins or timers")
        assert isinstance(part.sub, bytes)
        slot = unpack_slot(part.sub)
        if kind in keyed.PIECE_KINDS and keyed.rows_of(part.sub, part.raw) is not None:
            return _rows(kind, entry.key, keyed.sides_of(_loaded(loads, part.raw)))
        value = loads(part.raw)
        spec = self.windows.get(entry.step)
        if isinstance(spec, RangeWindowSpec):
            return _range_windows(spec, slot, value, kind)
        if isinstance(spec, SessionWindowSpec):
            return {"windows": [_session(spec, *session) for session in value]}
        if isinstance(spec, CountWindowSpec):
            return {"windows": [_count_window(*value)]}
        return _MATCHING[kind](value)


def windows_in(noted: str) -> WindowSpec | None:
    """Return the specification of windows in a plan's note of a step's state.

    >>> windows_in("app.Total over SessionWindowSpec(gap_ns=5, delay_ns=0, policy='drop')")
    SessionWindowSpec(gap_ns=5, delay_ns=0, policy='drop')
    """
    _, separator, text = noted.partition(" over ")
    if not separator:
        return None
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    spec = _SPECS.get(call.func.id)
    try:
        fields = {each.arg or "": ast.literal_eval(each.value) for each in call.keywords}
        return None if spec is None else spec(**fields)
    except (TypeError, ValueError):
        return None


def utc(time_ns: int) -> str:
    """Return a time in UTC, with no more digits than it has.

    >>> utc(1_767_225_600_250_000_000), utc(AT_END)
    ('2026-01-01T00:00:00.25Z', 'the end of input')
    """
    if time_ns >= AT_END:
        return "the end of input"
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    try:
        text = f"{_EPOCH + datetime.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"
    except OverflowError:
        return f"{time_ns} ns"
    digits = f"{fraction:09}".rstrip("0")
    return f"{text}.{digits}Z" if digits else f"{text}Z"


@lru_cache(maxsize=8)
def _loaded(loads: Loads, raw: bytes) -> Any:
    """Return the content of a piece, which is listed once per key."""
    return loads(raw)


def _value(value: Any) -> Any:
    return {"$packed": value.hex()} if isinstance(value, Packed) else plain(value)


def _in_order(items: Any) -> Any:
    if not isinstance(items, list):
        return items
    return sorted(items, key=lambda each: str(each.get("from") or each.get("at") or ""))


def _timer(clock: str, at_ns: int, name: str, added_at_ns: int) -> Form:
    return {"at": utc(at_ns), "name": name, "by": clock}


def _range_windows(spec: RangeWindowSpec, slot: Slot, value: Any, kind: str) -> dict[str, Any]:
    """Return the form of a pane: the times that are in the same windows."""
    if slot.kind == SPANS:
        return {}
    grid = Grid.of(spec)
    lower = max(grid.start(slot.last), grid.end(slot.first - 1))
    upper = min(grid.start(slot.last + 1), grid.end(slot.first))
    bounds = {"from": utc(lower), "to": utc(upper)}
    if slot.kind == PANE:
        bounds["fires"] = utc(grid.due(slot.first))
    else:
        bounds["corrects"] = utc(slot.when)
    name = "windows" if slot.first == slot.last else "panes"
    if kind != "window join":
        return {name: [{**bounds, "value": _value(value)}]}
    return {name: [{**bounds, **_sides(value)}]}


def _session(spec: SessionWindowSpec, start: int, last: int, value: Any) -> Form:
    end = last + spec.gap_ns
    bounds = {"from": utc(start), "to": utc(end), "fires": utc(end + spec.delay_ns)}
    return {**bounds, "value": _value(value)}


def _count_window(events: int, first: int, newest: int, value: Any, due: int) -> Form:
    bounds = {"from": utc(first), "to": utc(newest + 1), "events": events}
    return {**bounds, "fires": utc(due), "value": _value(value)}


def _sides(value: Any) -> Form:
    return {
        name: [_value(event) for event in events] for name, events in zip(SIDES, value, strict=True)
    }


def _rows(kind: str, key: Key, sides: Any) -> dict[str, list[Form]]:
    """Return the forms of a piece's rows of one key: events that wait for the watermark."""
    if kind == "in order":
        rows = [row for row in sides[0] if row[1] == key]
        return {"waiting": [{"at": utc(row[3]), "event": _value(row[2])} for row in rows]}
    return {
        name: [{"at": utc(row[0]), "event": _value(row[2])} for row in rows if row[1] == key]
        for name, rows in zip(SIDES, sides, strict=True)
    }


def _waiting(sub: bytes, value: Any, loads: Loads) -> dict[str, list[Form]]:
    """Return the form of events that wait in a join of pairs: a run of them, or one."""
    side, time_ns = side_and_time(sub)
    if isinstance(value, Packed):
        raise TypeError("only the application can read it")
    if len(value) == 3:
        times, met, packed = value
        events = zip(times, loads(packed), map(bool, met), strict=True)
        return {SIDES[side]: [_waiting_event(*each) for each in events]}
    event, has_met, *rest = value
    form = _waiting_event(time_ns, event, has_met)
    if rest:
        form["until"] = utc(rest[0])
        if rest[1] is not None:
            form["value"] = _value(rest[1])
    return {SIDES[side]: [form]}


def _waiting_event(time_ns: int, event: Any, has_met: bool) -> Form:
    return {"at": utc(time_ns), "event": _value(event), "has met one": has_met}


def _interval_sides(value: Any) -> dict[str, list[Form]]:
    return {
        name: [_waiting_event(*each) for each in events]
        for name, events in zip(SIDES, value, strict=True)
    }


def _newest(value: Any) -> dict[str, list[Form]]:
    time_ns, event = value
    return {"newest right": [{"at": utc(time_ns), "event": _value(event)}]}


def _distinct(value: Any) -> dict[str, list[Form]]:
    return {
        "seen": [
            {"at": utc(time_ns), "value": _value(distinct)}
            for distinct, times in value.items()
            for time_ns in times
        ]
    }


_MATCHING: dict[str, Callable[[Any], dict[str, list[Form]]]] = {
    "interval join": _interval_sides,
    "latest join": _newest,
    "latest join of rows": _newest,
    "dedupe": _distinct,
}
