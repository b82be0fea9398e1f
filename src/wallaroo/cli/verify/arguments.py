"""Arguments of ``wallaroo verify``.

Where it runs: a terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.verify.cases import CASES
from wallaroo.verify.disturbances.scaling import CHANGES, FAILURES, every_pair
from wallaroo.verify.disturbances.schedule import Deed
from wallaroo.verify.plain_receiver import BEHAVIOURS as RECEIVERS
from wallaroo.verify.processes import Kind

PAIRS_WORKERS_MAX = 5  # reached by growing by two twice
ON_SPARK = "spark"
IN_PROCESS = "in-process"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    _add_application(parser.add_argument)
    _add_load(parser.add_argument)
    _add_disturbances(parser.add_argument)
    _add_results(parser.add_argument)


def _add_application(add: Callable[..., Any]) -> None:
    """Add the options for the application and for the expected output."""
    add(
        "--app",
        default="all",
        metavar="APP",
        help=f"which application: {', '.join(CASES)}, or a file of your own with --oracle "
        "(default: each of these in turn, sharing the kills)",
    )
    add(
        "--oracle",
        metavar="FILE:CLASS",
        help="for an application of your own: a subclass of wallaroo.verify.cases.Case that makes "
        "its input and judges its output and state",
    )
    add(
        "--input",
        type=input_of,
        action="append",
        default=[],
        metavar="SOURCE=FILE",
        help="for an application of your own without an oracle: a source's messages, one to a "
        "line, sent "
        "again and again; output and state are compared with those of a run without faults",
    )
    add(
        "--key",
        default="",
        metavar="REGEX",
        help="with --input: what of an output line is its key; its outputs are then compared in "
        "order",
    )


def _add_load(add: Callable[..., Any]) -> None:
    """Add the options for kills and load."""
    add(
        "--kills",
        type=int,
        default=30,
        metavar="N",
        help="how many processes to kill (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=1,
        metavar="S",
        help="decides input and kills (default: %(default)s)",
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
        help="work in this new folder and keep it (default: a temporary one, gone if all is well)",
    )


def _add_disturbances(add: Callable[..., Any]) -> None:
    """Add the options for disturbances and for the host of the run."""
    add(
        "--changes",
        type=changes_of,
        default=(),
        metavar="CHANGE,...",
        help="run on a cluster of this machine that changes so instead of killing single "
        f"processes: {', '.join(CHANGES)}; 'pairs': every order of two of the first four; "
        "'failures': all the others",
    )
    add(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="with --changes and --deeds partition: workers at the start (default: %(default)s)",
    )
    add(
        "--latency",
        choices=("normal", "low"),
        default="normal",
        help="of the run, as in `wallaroo run` (default: %(default)s)",
    )
    add(
        "--deeds",
        type=deeds_of,
        default=(Deed.KILL,),
        metavar="DEED,...",
        help="what is done, --kills times: kill; hold (stopped for seconds, then continued); "
        "stop (the driver: a clean stop, then a new start); enospc, eio, torn (a write of the "
        "protocol fails so, or is cut in half by a death); clock (it jumps); flip (a bit of a "
        "file, between two starts); all of these (default: kill); or partition, alone: hosts that "
        "cannot reach each other, with executors in network namespaces, as root",
    )
    add(
        "--receiver",
        choices=RECEIVERS,
        help="a plain TCP receiver of this behaviour instead of the resuming one; outputs may come "
        "again there, in order, and none may be lost (--app sequence)",
    )
    add(
        "--host",
        choices=(ON_SPARK, IN_PROCESS),
        default=ON_SPARK,
        help="in-process: without Spark, batches run in the driver; a start takes a second, and "
        "ingress, egress, disk and recovery are the same (default: %(default)s)",
    )
    add(
        "--together",
        type=int,
        default=1,
        metavar="N",
        help="do so many at once, before recovery is waited for (default: %(default)s)",
    )


def _add_results(add: Callable[..., Any]) -> None:
    """Add the options for the results."""
    add("--quiet", action="store_true", help="print the results only")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="append the figures of each application to this file, as a line of JSON",
    )


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Parse kinds of processes, such as ``driver,egress``."""
    try:
        return tuple(Kind(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; the kinds are {', '.join(kind.value for kind in Kind)}"
        ) from None


def deeds_of(text: str) -> tuple[Deed, ...]:
    """Parse deeds, such as ``kill,hold``."""
    try:
        if text == "all":
            return tuple(deed for deed in Deed if deed is not Deed.PARTITION)
        return tuple(Deed(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; the deeds are {', '.join(deed.value for deed in Deed)}"
        ) from None


def changes_of(text: str) -> tuple[str, ...]:
    """Parse changes, such as ``grow1,kill``, or ``pairs`` or ``failures``."""
    changes = (
        every_pair(1, PAIRS_WORKERS_MAX, 2)
        if text == "pairs"
        else FAILURES
        if text == "failures"
        else tuple(text.split(","))
    )
    unknown = [change for change in changes if change not in CHANGES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is no change; the changes are {', '.join(CHANGES)}, pairs, failures"
        )
    return changes


def input_of(text: str) -> tuple[str, Path]:
    """Parse ``SOURCE=FILE``."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not SOURCE=FILE")
    return name, Path(file)


def wrong(what: str, fix: str) -> WallarooParameterError:
    """Return the error for arguments that cannot be combined."""
    return WallarooParameterError(Problem("wallaroo verify", "", what, fix))
