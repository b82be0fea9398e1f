"""Arguments of ``wallaroo verify``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from wallaroo.cli.run.arguments import latency_target
from wallaroo.cli.terminal.parser import whole
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.options import HostKind
from wallaroo.testing.verify.plain_receiver import BEHAVIOURS as RECEIVERS
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.schedule import Fault

IN_PROCESS = "in-process"
# partitions need a network namespace per host, which this command does not create
FAULTS = tuple(fault for fault in Fault if fault is not Fault.PARTITION)


def add_options(parser: argparse.ArgumentParser, cases: Collection[str] = ()) -> None:
    """Add all options of the command; ``cases`` are applications that can be chosen by name."""
    if cases:
        parser.add_argument(
            "--app",
            default="all",
            metavar="APP",
            help=f"which application: {', '.join(cases)}, or a file of your own with --oracle "
            "(default: each of these in turn, sharing the kills)",
        )
    else:
        parser.add_argument(
            "--app",
            required=True,
            metavar="FILE",
            help="the application's file, with --oracle or --input",
        )
    _add_oracle(parser.add_argument)
    _add_load(parser.add_argument)
    _add_disturbances(parser.add_argument)
    _add_results(parser.add_argument)


def _add_oracle(add: Callable[..., Any]) -> None:
    """Add the options for the expected output."""
    add(
        "--oracle",
        metavar="FILE:CLASS",
        help="a subclass of wallaroo.testing.verify.cases.Case that generates "
        "its input and checks its output and state",
    )
    add(
        "--input",
        type=input_of,
        action="append",
        default=[],
        metavar="SOURCE=FILE",
        help="without an oracle: a source's messages, one per line, sent repeatedly; output "
        "and state are compared with those of a run without faults",
    )
    add(
        "--key",
        type=_pattern,
        default="",
        metavar="REGEX",
        help="with --input: a pattern that finds the key in an output line; each key's outputs are "
        "then compared in order",
    )


def _pattern(text: str) -> str:
    try:
        re.compile(text.encode())
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _add_load(add: Callable[..., Any]) -> None:
    add(
        "--kills",
        type=whole(0),
        default=30,
        metavar="N",
        help="number of processes to kill (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=1,
        metavar="S",
        help="seed of input and kills (default: %(default)s)",
    )
    add(
        "--seconds",
        type=float,
        default=float("inf"),
        metavar="S",
        help="kill nothing later than this after the first output, per application",
    )
    kinds = ", ".join(kind.value for kind in Kind)
    add(
        "--only",
        type=kinds_of,
        default=tuple(Kind),
        metavar="KIND,...",
        help=f"kill these only: {kinds}",
    )
    add(
        "--rate",
        type=float,
        default=2000.0,
        metavar="N",
        help="events per second and source (default: %(default)g)",
    )
    add(
        "--keep",
        type=Path,
        metavar="DIR",
        help="work in this new folder and keep it (default: a temporary one, deleted on success)",
    )


def _add_disturbances(add: Callable[..., Any]) -> None:
    """Add the options for disturbances and for the host of the run."""
    add("--latency", type=latency_target, metavar="TARGET", help="of the run, as in `wallaroo run`")
    add(
        "--faults",
        "--deeds",  # the former name
        type=faults_of,
        default=(Fault.KILL,),
        metavar="FAULT,...",
        help="what is done, --kills times: kill; hold (stopped for seconds, then continued); "
        "stop (the driver: a clean stop, then a new start); enospc, eio, torn (a write of the "
        "protocol fails so, or is cut in half by a death); clock (it jumps); flip (a bit of a "
        "file, between two starts); all of these (default: kill)",
    )
    add(
        "--receiver",
        choices=RECEIVERS,
        help="a plain TCP receiver of this behaviour instead of the resuming one; outputs may come "
        "again there, in order, and none may be lost",
    )
    add(
        "--host",
        choices=(*HostKind, IN_PROCESS),
        default=HostKind.RESIDENT.value,
        help="of the run, as in `wallaroo run`; in-process: without Spark, batches run in the "
        "driver; a start takes a second, and ingress, egress, disk and recovery are the same "
        "(default: %(default)s)",
    )
    add(
        "--together",
        type=int,
        default=1,
        metavar="N",
        help="inject this many at once before waiting for recovery (default: %(default)s)",
    )


def _add_results(add: Callable[..., Any]) -> None:
    add("--quiet", action="store_true", help="print only the results")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="append each application's figures to this file, as a line of JSON",
    )


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Parse kinds of processes, such as ``driver,egress``."""
    try:
        return tuple(Kind(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; the kinds are {', '.join(kind.value for kind in Kind)}"
        ) from None


def faults_of(text: str) -> tuple[Fault, ...]:
    """Parse faults, such as ``kill,hold``."""
    try:
        chosen = FAULTS if text == "all" else tuple(Fault(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; {_faults_text()}") from None
    if Fault.PARTITION in chosen:
        raise argparse.ArgumentTypeError(f"'partition' is not supported; {_faults_text()}")
    return chosen


def _faults_text() -> str:
    return f"the faults are {', '.join(fault.value for fault in FAULTS)}"


def input_of(text: str) -> tuple[str, Path]:
    """Parse ``SOURCE=FILE``."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not SOURCE=FILE")
    return name, Path(file)


def wrong(what: str, fix: str) -> WallarooParameterError:
    """Return the error for arguments that cannot be combined."""
    return WallarooParameterError(Problem("wallaroo verify", "", what, fix))
