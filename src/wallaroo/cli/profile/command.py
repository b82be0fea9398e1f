"""``wallaroo profile``: time and memory of an application over some seconds.

The application is not changed: it always collects these figures, and a flame graph is recorded from
outside.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wallaroo.cli.application import targets
from wallaroo.cli.application.arguments import trailing_parser
from wallaroo.cli.profile.figures import (
    Details,
    Figures,
    ProcessFigures,
    cpu_s,
    figures_between,
    processes,
)
from wallaroo.cli.profile.flame import FlameGraph, find_program
from wallaroo.cli.terminal.formatting import print_table, size
from wallaroo.cli.terminal.parser import whole
from wallaroo.errors import PeerError, PipelineError, Problem
from wallaroo.monitoring.metrics.status import RunState
from wallaroo.monitoring.status_api.discovery import running

POLL_S = 0.25
START_S_MAX = 300.0
STOP_S_MAX = 90.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "profile",
        help="show where an application's time and memory go",
        description=(
            "Show each step's share of the time, rates, shuffled bytes, the keys that take most, "
            "and memory by process: of a running application, or of one that is run for that."
        ),
        epilog="After APP, options of `wallaroo run` and of the application may follow.",
    )
    _add_options(parser)
    parser.add_argument(
        "where",
        nargs="?",
        metavar="WHERE or APP",
        help="HOST:PORT or the checkpoint folder of a running application (default: the one that "
        "runs here), or an application to run",
    )
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help=argparse.SUPPRESS)
    parser.set_defaults(handler=profile_command)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=whole(1, 3600),
        default=10,
        metavar="N",
        help="how long (default: %(default)s)",
    )
    parser.add_argument(
        "--flame",
        type=Path,
        metavar="FILE",
        help="write a flame graph of all Python processes there, as SVG (needs py-spy)",
    )
    parser.add_argument("--json", action="store_true", help="print one object")


def profile_command(arguments: argparse.Namespace) -> int:
    """Profile an application and print its figures; return the exit code."""
    where = arguments.where
    own = trailing_parser("profile", where or "", _add_options)
    given = argparse.Namespace(**vars(arguments))
    options, others = own.parse_known_args(arguments.rest, given)
    if options.flame is not None:
        find_program()  # before anything is started
    if where is not None and not targets.is_place(where):
        with _run_for_it(where, others) as target:
            return _profile(target, options)
    if others:
        what = f"{' '.join(others)}: a running application takes no options."
        raise PipelineError(Problem("wallaroo profile", "", what, "Leave them out."))
    found = targets.target_of(where) if where is not None else targets.only_one("profile")
    return targets.SEVERAL if found is None else _profile(found, options)


def _profile(target: targets.Target, options: argparse.Namespace) -> int:
    print(f"wallaroo: profiling for {options.seconds} s", file=sys.stderr, flush=True)
    flame = _flame_graph(target, options)
    before = _details(target)
    cpu = cpu_s(target.pid) if target.pid else {}
    began = time.monotonic()
    after = _wait(target, began + options.seconds, before)
    took = time.monotonic() - began
    figures = figures_between(before, after, took)
    memory = processes(target.pid, cpu, took) if target.pid else []
    if options.json:
        print(json.dumps({**asdict(figures), "processes": [asdict(one) for one in memory]}))
    else:
        _show(figures, memory)
    if flame is not None:
        flame.finish()
        print(f"Flame graph: {options.flame}", file=sys.stderr)
    return 0


def _flame_graph(target: targets.Target, options: argparse.Namespace) -> FlameGraph | None:
    if options.flame is None:
        return None
    if target.pid is None:
        raise PeerError(
            "a flame graph can only be recorded on the application's machine: run this there."
        )
    return FlameGraph(target.pid, options.seconds, options.flame)


def _details(target: targets.Target) -> Details:
    found: Details = json.loads(target.ask("/details").body)
    return found


def _wait(target: targets.Target, until: float, before: Details) -> Details:
    """Return the figures at ``until``, or the last ones if the application ends earlier."""
    latest = before
    while time.monotonic() < until:
        time.sleep(POLL_S)
        try:
            latest = _details(target)
        except PeerError:
            break
    return latest


# -- running an application for it


@contextlib.contextmanager
def _run_for_it(app: str, others: list[str]) -> Iterator[targets.Target]:
    command = [sys.executable, "-m", "wallaroo", "run", "--no-live", app, *others]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield _started(run)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGTERM)
        try:
            run.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            run.kill()


def _started(run: subprocess.Popen[bytes]) -> targets.Target:
    """Wait until the run processes batches, and return it as a target."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        if run.poll() is not None:
            raise PeerError(
                "the application ended before it could be profiled. Give it more input, or "
                "profile it while it runs."
            )
        for record in running():
            target = targets.as_target(record)
            with contextlib.suppress(PeerError):
                if record.pid == run.pid and _is_running(target):
                    return target
        time.sleep(POLL_S)
    raise PeerError(f"the application did not start within {START_S_MAX:.0f} s.")


def _is_running(target: targets.Target) -> bool:
    status = json.loads(target.ask("/status").body)
    return bool(status["state"] == RunState.RUNNING)


# -- showing it


def _known(share: float) -> str:
    """Format a share, "-" if it is unknown: only the greatest ones are known."""
    return f"{share:.1%}" if share else "-"


def _show(figures: Figures, memory: list[ProcessFigures]) -> None:
    print(f"Steps, over {figures.seconds:.0f} s (time is sampled)")
    print_table(
        ("stage", "step", "share", "events/s", "us/event"),
        [
            (
                str(step.stage),
                step.step,
                f"{step.share:.1%}",
                f"{step.events_per_s:,.0f}",
                # a step that was not measured does not take 0 us
                f"{step.us_per_event:.1f}" if step.us_per_event else "-",
            )
            for step in figures.steps
        ],
    )
    if not any(step.events_per_s for step in figures.steps):
        print("  no events were processed meanwhile")
    if figures.shuffles:
        print("\nShuffles")
        print_table(
            ("stages", "events/s", "pickled bytes/s", "bytes/event"),
            [
                (
                    f"{shuffle.origin} -> {shuffle.stage}",
                    f"{shuffle.events_per_s:,.0f}",
                    size(shuffle.bytes_per_s),
                    f"{shuffle.bytes_per_s / max(shuffle.events_per_s, 1e-9):.0f}",
                )
                for shuffle in figures.shuffles
            ],
        )
    if figures.keys:
        print("\nKeys with the most time or events (newest hours of the run)")
        print_table(
            ("stage", "key", "of the time", "of the events"),
            [
                (str(key.stage), key.key, _known(key.of_time), _known(key.of_events))
                for key in figures.keys
            ],
        )
    if memory:
        print("\nProcesses")
        print_table(
            ("name", "pid", "cores", "memory", "of its own"),
            [
                (
                    one.name,
                    str(one.pid),
                    f"{one.cpu:.2f}",
                    size(one.resident_bytes),
                    size(one.own_bytes) if one.own_bytes else "?",
                )
                for one in memory
            ],
        )
