"""``wallaroo verify``: run an application under load, kill its processes, and prove that nothing is
lost or doubled.

Where it runs: a terminal; the application's processes are its children.

The exit code is 0 where input, output and state agree, 1 otherwise.  The seed decides the input and
the kills; the moments at which they meet depend on the machine.
"""

from __future__ import annotations

import argparse
import importlib
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

from wallaroo.cli.receive.receiver import Receiver
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.errors import PeerError, Problem, WallarooParameterError
from wallaroo.local_cluster import LocalCluster
from wallaroo.verify.cases import CASES, Case
from wallaroo.verify.harness import Verification, VerifyOptions
from wallaroo.verify.killer import Deed
from wallaroo.verify.plain_receiver import BEHAVIOURS as RECEIVERS
from wallaroo.verify.plain_receiver import PlainReceiver
from wallaroo.verify.processes import Kind
from wallaroo.verify.result import Result
from wallaroo.verify.scaling import CHANGES, FAILURES, ScalingVerification, every_pair

PAIRS_WORKERS_MAX = 5  # growing by two twice
ON_CLUSTER = ("--conf", "spark.executor.memory=512m")  # several executors on one machine
CONNECT_S_MAX = 120.0  # a sender waits so long for a run that starts again


def add_parser(subparsers: Any) -> None:
    """Add ``verify`` to the commands."""
    parser = subparsers.add_parser(
        "verify",
        allow_abbrev=False,
        help="kill an application's processes under load and compare with an oracle",
        description="Run an application under load, kill its processes at random moments, start it again with the same command, "
        "and hold input, output and state against an oracle.",
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
    add("--changes", type=changes_of, default=(), metavar="CHANGE,...",
        help="run on a cluster of this machine that changes so instead of killing single processes: "
        f"{', '.join(CHANGES)}; 'pairs': every order of two of the first four; 'failures': all the others")  # fmt: skip
    add(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="with --changes: workers at the start (default: %(default)s)",
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
        help="what is done, --kills times: kill; hold (stopped for seconds, then continued); stop (the "
        "driver: a clean stop, then a new start); enospc, eio, torn (a write of the protocol fails so, "
        "or is cut in half by a death); clock (it jumps); flip (a bit of a file, between two starts); "
        "all (default: kill)",
    )
    add(
        "--receiver",
        choices=RECEIVERS,
        help="a plain TCP receiver of this behaviour instead of the resuming one; outputs may come "
        "again there, in order, and none may be lost (--app sequence)",
    )
    add("--quiet", action="store_true", help="print the results only")
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
        return tuple(Deed) if text == "all" else tuple(Deed(part) for part in text.split(","))
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
    cases = list(CASES) if options.app == "all" else [Path(options.app).stem]
    is_clean = True
    for number, case in enumerate(cases):
        kills = options.kills // len(cases) + (number < options.kills % len(cases))
        chosen = VerifyOptions(
            case,
            kills,
            options.seed,
            options.seconds,
            options.rate,
            options.only,
            options.deeds,
            own,
            options.receiver is not None,
        )
        if options.latency != "normal":
            on_host = (*chosen.run_options, "--latency", options.latency)
            chosen = replace(chosen, run_options=on_host)
        with _workplace(options.keep, case) as folder:
            if options.changes:
                result = verify_scaling(
                    chosen, folder, options.changes, options.workers, options.quiet
                )
            else:
                result = verify(chosen, folder, options.quiet, options.receiver or "")
            print(result.text(), flush=True)
            if not result.is_clean:
                print(f"  everything is in {folder}", flush=True)
            elif options.keep is None:
                shutil.rmtree(folder, ignore_errors=True)
        is_clean = is_clean and result.is_clean
    return 0 if is_clean else 1


def _own_case(options: argparse.Namespace) -> type[Case] | None:
    """Load the oracle of a user's application; None for one of ours."""
    if options.app == "all" or options.app in CASES:
        return None
    file, _, name = (options.oracle or "").rpartition(":")
    if not file or not Path(options.app).is_file():
        raise _wrong(
            f"--app {options.app}: it is none of {', '.join(CASES)}, all, and not a file with an "
            f"--oracle FILE:CLASS.",
            "Name one of these, or give the application's file and --oracle.",
        )
    sys.path[:0] = [str(Path(options.app).resolve().parent), str(Path(file).resolve().parent)]
    found = getattr(importlib.import_module(Path(file).stem), name, None)
    if not (isinstance(found, type) and issubclass(found, Case)):
        raise _wrong(
            f"--oracle {options.oracle}: there is no subclass of wallaroo.verify.cases.Case of "
            f"that name.",
            "Name the class that makes the input and judges the output.",
        )
    return type(name, (found,), {"module": options.app})


def _wrong(what: str, fix: str) -> WallarooParameterError:
    return WallarooParameterError(Problem("wallaroo verify", "", what, fix))


def verify(
    options: VerifyOptions, folder: Path, is_quiet: bool = False, behaviour: str = ""
) -> Result:
    """Verify one application in ``folder``; ``behaviour`` is that of a plain receiver, if it is
    one.
    """
    output = folder / "output"
    with (
        output.open("wb") as out,
        PlainReceiver(out, behaviour)
        if behaviour
        else Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
    ):
        result = Verification(
            options, folder, receiver, output, _send, _nothing if is_quiet else _say
        ).run()
        out.flush()
    return result


def verify_scaling(
    options: VerifyOptions,
    folder: Path,
    changes: tuple[str, ...],
    workers: int,
    is_quiet: bool = False,
    cores: int = 1,
) -> Result:
    """Verify one application in ``folder`` on a cluster that changes; workers have ``cores`` cores
    each.
    """
    output, say = folder / "output", _nothing if is_quiet else _say
    with (
        output.open("wb") as out,
        Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
        LocalCluster.start(folder / "cluster", workers, cores=cores) as cluster,
    ):
        on_cluster = ("--master", cluster.url, *ON_CLUSTER, "--batch-time", "0.5")
        chosen = replace(options, kinds=(Kind.WORKER, Kind.DRIVER), run_options=on_cluster)
        verification = ScalingVerification(
            chosen, folder, receiver, output, _send, say, cluster=cluster, changes=changes
        )
        result = verification.run()
        out.flush()
    return result


@contextmanager
def _workplace(keep: Path | None, case: str) -> Iterator[Path]:
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


def _send(port: int, stream: str, payloads: list[bytes], rate: float) -> None:
    send_acknowledged(
        ("127.0.0.1", port),
        stream,
        of_payloads(payloads),
        connect_timeout_s=CONNECT_S_MAX,
        rate=rate,
    )


def _leave(number: int, frame: FrameType | None) -> None:
    """End in an orderly way, so that the run under test does not outlive this process."""
    sys.exit(128 + number)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nothing(text: str) -> None:
    """Say nothing."""
