"""Figures of steps, shuffles, keys and processes between two samples of an application.

Where it runs: a terminal, on the driver's machine; pure but for `processes`.  A sample is the JSON
of the status server's ``/details``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from wallaroo.processes.roles import family, name_of

KEYS_SHOWN = 5

Details = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepFigures:
    """A step's rate, cost per event and share of all steps' time."""

    stage: int
    step: str
    share: float
    events_per_s: float
    us_per_event: float


@dataclass(frozen=True, slots=True)
class ShuffleFigures:
    """Events and bytes per second through one shuffle."""

    origin: int
    stage: int
    events_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """A key's share of its stage's events, and of its time."""

    stage: int
    key: str
    of_events: float
    of_time: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures over some seconds."""

    seconds: float
    steps: tuple[StepFigures, ...]  # in the order in which events pass
    shuffles: tuple[ShuffleFigures, ...]
    keys: tuple[KeyFigures, ...]


def figures_between(before: Details, after: Details, seconds: float) -> Figures:
    """Compute the figures; keys cover the whole run, because their shares fade."""
    return Figures(
        seconds, _steps(before, after, seconds), _shuffles(before, after, seconds), _keys(after)
    )


def _steps(before: Details, after: Details, seconds: float) -> tuple[StepFigures, ...]:
    began = {(step["stage"], step["place"]): step for step in before["steps"]}
    spent = []
    for step in after["steps"]:
        old = began.get((step["stage"], step["place"]), {"events": 0, "seconds": 0.0})
        spent.append((step, step["events"] - old["events"], step["seconds"] - old["seconds"]))
    total_s = sum(took for _, _, took in spent)
    return tuple(
        StepFigures(
            step["stage"],
            step["step"],
            took / total_s if total_s else 0.0,
            events / seconds,
            1e6 * took / events if events else 0.0,
        )
        for step, events, took in spent
    )


def _shuffles(before: Details, after: Details, seconds: float) -> tuple[ShuffleFigures, ...]:
    events = {(a, b): count for a, b, count in before["edges"]}
    sizes = {(a, b): size for a, b, size in before["edge_bytes"]}
    now = {(a, b): size for a, b, size in after["edge_bytes"]}
    return tuple(
        ShuffleFigures(
            a,
            b,
            (count - events.get((a, b), 0)) / seconds,
            (now.get((a, b), 0) - sizes.get((a, b), 0)) / seconds,
        )
        for a, b, count in after["edges"]
    )


def _keys(after: Details) -> tuple[KeyFigures, ...]:
    """Return the keys of each stage with the most time, and those with the most events."""
    rows = []
    slow = after["slow_keys"]
    hot = after["hot_keys"]
    for stage in sorted({*slow, *hot}, key=int):
        of_time = dict(map(tuple, slow.get(stage, [])))
        of_events = dict(map(tuple, hot.get(stage, [])))
        top = [*list(of_time)[:KEYS_SHOWN], *list(of_events)[:KEYS_SHOWN]]
        rows += [
            KeyFigures(int(stage), key, of_events.get(key, 0.0), of_time.get(key, 0.0))
            for key in dict.fromkeys(top)
        ]
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Memory and processor use of one process.

    ``cpu`` is in cores; ``own_bytes`` excludes memory shared with others, and is 0 if the system
    does not report it.
    """

    name: str
    pid: int
    cpu: float
    resident_bytes: int
    own_bytes: int


def cpu_s(driver: int) -> dict[int, float]:
    """Return the processor time of the driver and of all processes below it, by pid."""
    seconds = {}
    for process in family(driver):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            seconds[process.pid] = times.user + times.system
    return seconds


def processes(driver: int, before: dict[int, float], seconds: float) -> list[ProcessFigures]:
    """Return all processes' figures, largest first; ``before``: CPU times ``seconds`` ago."""
    rows = []
    for process in family(driver):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            used_s = times.user + times.system - before.get(process.pid, 0.0)
            name = "driver" if process.pid == driver else name_of(process.cmdline())
            resident, own = _memory(process)
            rows.append(ProcessFigures(name, process.pid, used_s / seconds, resident, own))
    return sorted(rows, key=lambda figures: -figures.resident_bytes)


def _memory(process: psutil.Process) -> tuple[int, int]:
    try:
        full = process.memory_full_info()
        return full.rss, getattr(full, "uss", 0)
    except psutil.AccessDenied:
        return process.memory_info().rss, 0
