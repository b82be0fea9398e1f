"""``wallaroo verify``: run an application under load, kill its processes, and prove that nothing is
lost or doubled.

Where it runs: a terminal; the application's processes are its children.

The exit code is 0 where input, output and state agree, 1 otherwise.  The seed decides the input and
the kills; the moments at which they meet depend on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from wallaroo.cli.verify_course import verify, verify_partitions, verify_scaling
from wallaroo.errors import PeerError, Problem, WallarooParameterError
from wallaroo.verify.cases import CASES, Case
from wallaroo.verify.disturbances.namespaces import why_not
from wallaroo.verify.disturbances.scaling import CHANGES, FAILURES, every_pair
from wallaroo.verify.disturbances.schedule import Deed
from wallaroo.verify.options import VerifyOptions
from wallaroo.verify.plain_receiver import BEHAVIOURS as RECEIVERS
from wallaroo.verify.processes import Kind
from wallaroo.verify.result import Result
from wallaroo.verify.undisturbed import Observed

PAIRS_WORKERS_MAX = 5  # growing by two twice
ON_SPARK = "spark"
IN_PROCESS = "in-process"
# of a run without Spark: commits are few, so that output that waits is listed
IN_PROCESS_OPTIONS = ("--batch-time", "0.5", "--retain-commits", "2")
IN_PROCESS_PROGRAM = ("wallaroo.cli.run.in_process",)
IN_PROCESS_KINDS = (Kind.DRIVER, Kind.INGRESS, Kind.EGRESS)


def add_parser(subparsers: Any) -> None:
    """Add ``verify`` to the commands."""
    parser = subparsers.add_parser(
        "verify",
        allow_abbrev=False,
        help="kill an application's processes under load and compare with an oracle",
        description="Run an application under load, kill its processes at random moments, start "
        "it again with the same command, and hold input, output and state against an oracle.",
    )
    add = parser.add_argument
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
    add("--quiet", action="store_true", help="print the results only")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="append the figures of each application to this file, as a line of JSON",
    )
    parser.set_defaults(handler=verify_command)


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Read ``driver,egress``."""
    try:
        return tuple(Kind(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; the kinds are {', '.join(kind.value for kind in Kind)}"
        ) from None


def deeds_of(text: str) -> tuple[Deed, ...]:
    """Read ``kill,hold``."""
    try:
        if text == "all":
            return tuple(deed for deed in Deed if deed is not Deed.PARTITION)
        return tuple(Deed(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; the deeds are {', '.join(deed.value for deed in Deed)}"
        ) from None


def changes_of(text: str) -> tuple[str, ...]:
    """Read ``grow1,kill``, ``pairs`` or ``failures``."""
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


def verify_command(options: argparse.Namespace) -> int:
    """Verify each application; return the exit code."""
    signal.signal(signal.SIGTERM, _leave)
    own = _own_case(options)
    if options.receiver and own is None and options.app != "sequence":
        raise _wrong(
            "--receiver goes with --app sequence and with applications of your own.",
            "Add --app sequence, or leave --receiver out.",
        )
    if options.latency == "low" and options.changes:
        raise _wrong(
            "--latency low takes one machine, and --changes a cluster.", "Leave one of them away."
        )
    on_spark = options.latency == "low" or options.changes or Deed.PARTITION in options.deeds
    if options.host == IN_PROCESS and on_spark:
        raise _wrong(
            "--host in-process has no --latency low, --changes and partitions: they take Spark.",
            "Leave --host away.",
        )
    if Deed.PARTITION in options.deeds:
        _refuse_with_partitions(options)
    enough = Enough()
    before = signal.signal(signal.SIGINT, enough.handle)
    try:
        return _verify_all(options, own, enough)
    finally:
        signal.signal(signal.SIGINT, before)


def _verify_all(options: argparse.Namespace, own: type[Case] | None, enough: Enough) -> int:
    cases = list(CASES) if options.app == "all" else [Path(options.app).stem]
    is_clean = True
    for number, case in enumerate(cases):
        kills = options.kills // len(cases) + (number < options.kills % len(cases))
        chosen = VerifyOptions(
            case=case,
            kills=kills,
            seed=options.seed,
            seconds=options.seconds,
            rate=options.rate,
            kinds=_kinds(options),
            deeds=options.deeds,
            together=max(1, options.together),
            is_enough=enough.is_set,
            own=own,
            is_plain=options.receiver is not None,
        )
        if options.host == IN_PROCESS:
            chosen = replace(chosen, run_options=IN_PROCESS_OPTIONS, program=IN_PROCESS_PROGRAM)
        elif options.latency != "normal":
            on_host = (*chosen.run_options, "--latency", options.latency)
            chosen = replace(chosen, run_options=on_host)
        with _working_folder(options.keep, case) as folder:
            if Deed.PARTITION in options.deeds:
                result = verify_partitions(chosen, folder, options.workers, options.quiet)
            elif options.changes:
                result = verify_scaling(
                    chosen, folder, options.changes, options.workers, options.quiet
                )
            else:
                result = verify(chosen, folder, options.quiet, options.receiver or "")
            print(result.text(), flush=True)
            if options.json is not None:
                _write_figures(options, result)
            if not result.is_clean:
                print(f"  everything is in {folder}", flush=True)
            elif options.keep is None:
                shutil.rmtree(folder, ignore_errors=True)
        is_clean = is_clean and result.is_clean
    return 0 if is_clean else 1


def _kinds(options: argparse.Namespace) -> tuple[Kind, ...]:
    """Return what can be killed on the host."""
    there: tuple[Kind, ...] = IN_PROCESS_KINDS
    if options.host == ON_SPARK:
        is_low = options.latency == "low"
        there = tuple(kind for kind in Kind if not (is_low and kind is Kind.PLANNER))
    kinds = tuple(kind for kind in options.only if kind in there)
    if not kinds:
        named = ", ".join(kind.value for kind in options.only)
        raise _wrong(
            f"--only {named}: such a run has no process of these kinds.",
            f"Name some of {', '.join(kind.value for kind in there)}.",
        )
    return kinds


def _own_case(options: argparse.Namespace) -> type[Case] | None:
    """Make the case of a user's application, with an oracle or with input; None for one of ours."""
    if options.app == "all" or options.app in CASES:
        return None
    if not Path(options.app).is_file() or not (options.oracle or options.input):
        raise _wrong(
            f"--app {options.app}: it is none of {', '.join(CASES)}, all, and not a file with an "
            f"--oracle FILE:CLASS or --input SOURCE=FILE.",
            "Name one of these, or give the application's file and --oracle or --input.",
        )
    sys.path.insert(0, str(Path(options.app).resolve().parent))
    own = _oracle(options.oracle) if options.oracle else _observed(options.input, options.key)
    return type(own.__name__, (own,), {"module": options.app})


def _oracle(named: str) -> type[Case]:
    file, _, name = named.rpartition(":")
    sys.path.insert(0, str(Path(file).resolve().parent))
    found = None
    if Path(file).is_file():
        found = getattr(importlib.import_module(Path(file).stem), name, None)
    if not (isinstance(found, type) and issubclass(found, Case)):
        raise _wrong(
            f"--oracle {named}: there is no subclass of wallaroo.verify.cases.Case of that name.",
            "Name the class that makes the input and judges the output.",
        )
    return found


def _observed(inputs: list[tuple[str, Path]], key: str) -> type[Case]:
    for source, file in inputs:
        if not file.is_file():
            raise _wrong(f"--input {source}={file}: there is no such file.", "Name one.")
    lines = {source: file.read_bytes().splitlines() for source, file in inputs}
    for source, file in inputs:
        if not lines[source]:
            raise _wrong(f"--input {source}={file}: it has no lines.", "A line is a message.")
    return type("Observed", (Observed,), {"sources": tuple(lines), "lines": lines, "key": key})


def input_of(text: str) -> tuple[str, Path]:
    """Read ``SOURCE=FILE``."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"{text!r} is not SOURCE=FILE")
    return name, Path(file)


def _wrong(what: str, fix: str) -> WallarooParameterError:
    return WallarooParameterError(Problem("wallaroo verify", "", what, fix))


def _refuse_with_partitions(options: argparse.Namespace) -> None:
    if options.deeds != (Deed.PARTITION,) or options.changes or options.receiver:
        raise _wrong(
            "--deeds partition runs on hosts of its own, without other deeds, --changes and "
            "--receiver.",
            "Leave the others out.",
        )
    reason = why_not()
    if reason:
        raise _wrong(f"--deeds partition: {reason}.", "Run it as root on Linux.")


def _write_figures(options: argparse.Namespace, result: Result) -> None:
    how = {
        "host": options.host if options.host == IN_PROCESS else f"{options.latency} latency",
        "receiver": options.receiver or "resuming",
        "app": options.app,
    }
    line = json.dumps({**how, **result.figures()})
    try:
        with options.json.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise PeerError(
            f"--json {options.json} cannot be written: {error.strerror}. Name another file."
        ) from error


@contextmanager
def _working_folder(keep: Path | None, case: str) -> Iterator[Path]:
    if keep is None:
        folder = Path(tempfile.mkdtemp(prefix=f"wallaroo-verify-{case}-"))
    else:
        folder = keep / case
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise PeerError(
                f"--keep {keep}: {folder} cannot be made: {error.strerror}. Name a new folder."
            ) from error
    try:
        yield folder
    except BaseException:
        print(f"everything is in {folder}", file=sys.stderr, flush=True)
        raise


class Enough:
    """The first Ctrl-C ends the disturbances: what was done so far gets its verdict."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it was pressed."""
        return self._is_set

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Take a signal; the second one ends this process."""
        if self._is_set:
            raise KeyboardInterrupt
        self._is_set = True
        print("no more disturbances; once more to end at once", file=sys.stderr, flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    """End in an orderly way, so that the run under test does not outlive this process."""
    sys.exit(128 + number)
