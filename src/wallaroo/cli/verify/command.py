"""``wallaroo verify``: proof of exactly-once processing when processes are killed.

It runs an application under load and kills its processes.

Where it runs: a terminal; the application's processes are its children.

The exit code is 0 if input, output and state agree, 1 otherwise.  The seed determines the input and
the kills; the moments at which they coincide depend on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from wallaroo.cli.verify.arguments import IN_PROCESS, add_options, wrong
from wallaroo.cli.verify.session import verify
from wallaroo.errors import PeerError
from wallaroo.options import HostKind, Latency
from wallaroo.testing.verify.baseline import Observed
from wallaroo.testing.verify.cases import Case
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result


def own_case(options: argparse.Namespace) -> type[Case]:
    """Return the case of a user's application, by oracle or by input."""
    if not Path(options.app).is_file() or not (options.oracle or options.input):
        raise wrong(
            f"--app {options.app} must be an application's file, with --oracle FILE:CLASS or "
            "--input SOURCE=FILE.",
            "Name the application's file, and add --oracle or --input.",
        )
    sys.path.insert(0, str(Path(options.app).resolve().parent))
    own = _oracle(options.oracle) if options.oracle else _observed(options.input, options.key)
    return type(own.__name__, (own,), {"module": options.app})


def _oracle(named: str) -> type[Case]:
    file, _, name = named.rpartition(":")
    sys.path.insert(0, str(Path(file).resolve().parent))
    oracle = None
    if Path(file).is_file():
        oracle = getattr(importlib.import_module(Path(file).stem), name, None)
    if not (isinstance(oracle, type) and issubclass(oracle, Case)):
        raise wrong(
            f"--oracle {named}: no subclass of wallaroo.testing.verify.cases.Case has that name.",
            "Name the class that makes the input and judges the output.",
        )
    return oracle


def _observed(inputs: list[tuple[str, Path]], key: str) -> type[Case]:
    for source, file in inputs:
        if not file.is_file():
            raise wrong(f"--input {source}={file}: there is no such file.", "Name one.")
    lines = {source: file.read_bytes().splitlines() for source, file in inputs}
    for source, file in inputs:
        if not lines[source]:
            raise wrong(f"--input {source}={file}: it has no lines.", "A line is a message.")
    return type("Observed", (Observed,), {"sources": tuple(lines), "lines": lines, "key": key})


IN_PROCESS_PROGRAM = ("wallaroo.cli.in_process",)
IN_PROCESS_KINDS = (Kind.DRIVER, Kind.INGRESS, Kind.EGRESS)

# verifies one application in a folder, as the command line demands
Verifier = Callable[[VerifyOptions, Path, argparse.Namespace], Result]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "verify",
        help="kill an application's processes under load and compare with an oracle",
        description="Run an application under load, kill its processes at random moments, start "
        "it again with the same command, and hold input, output and state against an oracle.",
    )
    add_options(parser)
    parser.set_defaults(handler=verify_command)


def without_spark(options: VerifyOptions) -> VerifyOptions:
    """Return options for a run without Spark, which retains few commits, so that output is listed.

    Only processes of ``IN_PROCESS_KINDS`` exist there.
    """
    run_options = ("--batch-time", "0.5", "--retain-commits", "2")
    return replace(options, host=None, run_options=run_options, program=IN_PROCESS_PROGRAM)


def verify_command(options: argparse.Namespace) -> int:
    """Verify the user's application; return the exit code."""
    return verify_all(options, {Path(options.app).stem: own_case(options)}, _verify)


def verify_all(
    options: argparse.Namespace,
    cases: Mapping[str, type[Case]],
    verifier: Verifier,
    where: str = "",
) -> int:
    """Verify the applications of all cases, which share the kills; return the exit code.

    This is the public hook for command lines with cases of their own: their parser calls
    ``add_options`` with the cases' names.  ``where`` is added to the host's name in the figures.
    """
    signal.signal(signal.SIGTERM, _leave)
    if isinstance(options.latency, Latency):
        raise wrong(
            f"--latency {options.latency} is a former mode.",
            "Name a host: --host resident (low) or --host micro-batch (normal).",
        )
    if options.host == IN_PROCESS and options.latency is not None:
        raise wrong("--host in-process has no --latency, which needs Spark.", "Omit one of them.")
    enough = Enough()
    before = signal.signal(signal.SIGINT, enough.handle)
    try:
        return _verify_each(options, cases, verifier, enough, where)
    finally:
        signal.signal(signal.SIGINT, before)


def _verify(chosen: VerifyOptions, folder: Path, options: argparse.Namespace) -> Result:
    return verify(chosen, folder, options.quiet, options.receiver or "")


def _verify_each(
    options: argparse.Namespace,
    cases: Mapping[str, type[Case]],
    verifier: Verifier,
    enough: Enough,
    where: str,
) -> int:
    is_clean = True
    for number, (name, case) in enumerate(cases.items()):
        kills = options.kills // len(cases) + (number < options.kills % len(cases))
        chosen = VerifyOptions(
            name,
            case,
            kills=kills,
            seed=options.seed,
            seconds=options.seconds,
            rate=options.rate,
            kinds=_kinds(options),
            injected=options.faults,
            together=max(1, options.together),
            is_enough=enough.is_set,
            is_plain=options.receiver is not None,
            latency_ms=options.latency,
        )
        if options.host == IN_PROCESS:
            chosen = without_spark(chosen)
        else:
            chosen = replace(chosen, host=HostKind(options.host))
        with _working_folder(options.keep, name) as folder:
            result = verifier(chosen, folder, options)
            print(result.text(), flush=True)
            if options.json is not None:
                _write_figures(options, result, where)
            if not result.is_clean:
                print(f"  everything is in {folder}", flush=True)
            elif options.keep is None:
                shutil.rmtree(folder, ignore_errors=True)
        is_clean = is_clean and result.is_clean
    return 0 if is_clean else 1


def _kinds(options: argparse.Namespace) -> tuple[Kind, ...]:
    """Return the kinds of processes to kill, as far as the host has them."""
    there: tuple[Kind, ...] = IN_PROCESS_KINDS
    if options.host != IN_PROCESS:
        there = tuple(Kind)
    kinds = tuple(kind for kind in options.only if kind in there)
    if not kinds:
        named = ", ".join(kind.value for kind in options.only)
        raise wrong(
            f"--only {named}: such a run has no process of these kinds.",
            f"Name some of {', '.join(kind.value for kind in there)}.",
        )
    return kinds


def _write_figures(options: argparse.Namespace, result: Result, where: str) -> None:
    how = {
        "host": options.host + where,
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
                f"--keep {keep}: {folder} cannot be created: {error.strerror}. Name a new folder."
            ) from error
    try:
        yield folder
    except BaseException:
        print(f"everything is in {folder}", file=sys.stderr, flush=True)
        raise


class Enough:
    """A flag set by the first Ctrl-C, which ends the disturbances.

    The verdict then covers those done so far.
    """

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Return whether Ctrl-C was pressed."""
        return self._is_set

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; the second one ends this process."""
        if self._is_set:
            raise KeyboardInterrupt
        self._is_set = True
        print(
            "no more disturbances; press Ctrl-C again to exit at once", file=sys.stderr, flush=True
        )


def _leave(number: int, frame: FrameType | None) -> None:
    """Exit in an orderly way, so that the run under test does not outlive this process."""
    sys.exit(128 + number)
