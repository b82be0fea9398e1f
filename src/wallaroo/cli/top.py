"""``wallaroo top``: a live table of a running application, from another terminal.

Where it runs: a terminal, while the application runs.  It shows the run's table, and below it
the most expensive steps and keys, and the processes if they are on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from wallaroo.cli.application.targets import SEVERAL, Target, only_one, target_of
from wallaroo.cli.profile.figures import (
    Details,
    KeyFigures,
    ProcessFigures,
    StepFigures,
    cpu_s,
    figures_between,
    processes,
)
from wallaroo.cli.run.table import empty_table, live_table, table_console
from wallaroo.cli.terminal.formatting import size
from wallaroo.cli.terminal.parser import seconds
from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.status import RunStatus

EVERY_S = 1.0
OVER_S = 5.0  # shares and rates of steps cover the last seconds, because they are sampled
STEPS_SHOWN = 8
KEYS_SHOWN = 6
PROCESSES_SHOWN = 8


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "top",
        help="watch a running application: rates, lag, latency, hot steps and keys, processes",
        description="Watch a running application from another terminal; q or Ctrl-C ends it.",
    )
    parser.add_argument(
        "where",
        nargs="?",
        metavar="WHERE",
        help=(
            "HOST:PORT, or https://HOST:PORT, or the checkpoint folder of the application "
            "(default: the one that runs here)"
        ),
    )
    parser.add_argument(
        "--every",
        type=seconds,
        default=EVERY_S,
        metavar="SECONDS",
        help="seconds between two refreshes (default: %(default)s)",
    )
    parser.add_argument(
        "--count", type=int, metavar="N", help="refresh N times, then exit; for scripts and tests"
    )
    parser.set_defaults(handler=top_command)


def top_command(options: argparse.Namespace) -> int:
    """Show the application until q, Ctrl-C or its end; return the exit code."""
    target = target_of(options.where) if options.where else only_one("top")
    if target is None:
        return SEVERAL
    try:
        _watch(target, table_console(), options)
    except KeyboardInterrupt:
        return 0
    return 0


def _watch(target: Target, console: Console, options: argparse.Namespace) -> None:
    looks = Looks(target)
    first = looks.look()  # any problem with the target is an error of the command
    with _keyboard() as is_over_after, _screen(console) as show:
        show(first)
        for _ in _numbers(options.count):
            if is_over_after(options.every):
                break
            try:
                shown = looks.look()
            except PeerError:
                break  # it has ended
            show(shown)
    if sys.stdout.isatty():
        console.print(looks.last)


@contextmanager
def _screen(console: Console) -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that shows a refresh: in place of the last one on a terminal, else below."""
    if not sys.stdout.isatty():
        yield lambda shown: console.print(shown, "")
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        yield lambda shown: live.update(shown, refresh=True)


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for a time or a key, and returns whether the key was q.

    Without a terminal it only waits. The terminal is restored at the end.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield _only_wait
        return
    terminal = sys.stdin.fileno()

    def wait(seconds: float) -> bool:
        is_pressed = select.select((terminal,), (), (), seconds)[0]
        return bool(is_pressed) and os.read(terminal, 1) in (b"q", b"Q", b"")

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _numbers(count: int | None) -> Iterator[int]:
    """Yield the numbers of the polls after the first one."""
    number = 1
    while count is None or number < count:
        yield number
        number += 1


@dataclass(slots=True)
class Sample:
    """Figures of one moment."""

    at: float  # monotonic
    details: Details
    cpu: dict[int, float]


@dataclass(slots=True)
class Looks:
    """Polls of an application; rates cover the last seconds."""

    target: Target
    clock: Callable[[], float] = time.monotonic
    samples: list[Sample] = field(default_factory=list)
    last: RenderableType = ""

    def look(self) -> RenderableType:
        """Ask the application, and return what to show.  Raises PeerError if it does not answer."""
        status = self.target.status()
        details: Details = json.loads(self.target.ask("/details").body)
        pid = self.target.pid
        now = Sample(self.clock(), details, cpu_s(pid) if pid else {})
        self.samples.append(now)
        while len(self.samples) > 2 and now.at - self.samples[1].at >= OVER_S:
            del self.samples[0]
        self.last = self._shown(status, self.samples[0], now)
        return self.last

    def _shown(self, status: RunStatus, before: Sample, now: Sample) -> RenderableType:
        parts: list[RenderableType] = [
            live_table(replace(status, dashboard=self.target.dashboard), workers_from=1)
        ]
        seconds = now.at - before.at
        if seconds > 0:
            figures = figures_between(before.details, now.details, seconds)
            busy = sorted(figures.steps, key=lambda step: -step.share)[:STEPS_SHOWN]
            parts += _steps([step for step in busy if step.events_per_s], seconds)
            parts += _keys(figures.keys[:KEYS_SHOWN])
            if self.target.pid:
                found = processes(self.target.pid, before.cpu, seconds)
                parts += _processes(sorted(found, key=lambda one: -one.cpu)[:PROCESSES_SHOWN])
        return Group(*parts)


def _steps(steps: list[StepFigures], seconds: float) -> list[RenderableType]:
    if not steps:
        return [Text(f" no step was sampled in the last {seconds:.0f} s", style="dim")]
    shown = empty_table("step", "of the time", "events/s", "us/event", words=(0,))
    for step in steps:
        shown.add_row(
            Text(step.step),
            f"{step.share:.1%}",
            f"{step.events_per_s:,.0f}",
            f"{step.us_per_event:.1f}",
        )
    return [shown]


def _keys(keys: tuple[KeyFigures, ...]) -> list[RenderableType]:
    if not keys:
        return []
    shown = empty_table("key", "stage", "of its events", "of its time", words=(0,))
    for key in keys:
        shown.add_row(Text(key.key), str(key.stage), _share(key.of_events), _share(key.of_time))
    return [shown]


def _share(share: float) -> str:
    """Format a share, "–" if it is not known; only the greatest are."""
    return f"{share:.1%}" if share else "–"


def _processes(found: list[ProcessFigures]) -> list[RenderableType]:
    shown = empty_table("process", "pid", "cores", "memory", words=(0,))
    for one in found:
        shown.add_row(one.name, str(one.pid), f"{one.cpu:.2f}", size(one.resident_bytes))
    return [shown]
