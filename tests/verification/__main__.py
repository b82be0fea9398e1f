"""``python -m tests.verification``: `wallaroo verify` for the built-in cases, and on clusters.

    python -m tests.verification --app sequence --kills 20
    python -m tests.verification --app sequence --changes pairs
    python -m tests.verification --app sequence --faults partition

Where it runs: a terminal; the application's processes are its children.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.verification.cases import CASES
from tests.verification.clusters import verify_partitions, verify_scaling
from tests.verification.namespaces import unsupported_reason
from tests.verification.scaling import CHANGES, FAILURES, every_pair, workers_after
from wallaroo.cli.main import run_command
from wallaroo.cli.verify.arguments import IN_PROCESS, add_options, faults_of, wrong
from wallaroo.cli.verify.command import own_case, verify_all
from wallaroo.cli.verify.session import verify
from wallaroo.testing.verify.cases import Case
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.result import Result
from wallaroo.testing.verify.trial.schedule import Fault

PAIRS_WORKERS_MAX = 5  # reached by growing by two twice
ON_CLUSTER = ", cluster"  # in the figures, after the host's name
IN_STORE = ", store"
ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Verify the chosen cases; return the exit code."""
    paths = (str(ROOT), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))  # for the runs
    return run_command(build_parser().parse_args(arguments), arguments)


def build_parser() -> argparse.ArgumentParser:
    """Add the options for clusters to those of ``wallaroo verify``."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.verification",
        allow_abbrev=False,
        conflict_handler="resolve",  # --deeds accepts more here
        description="Run the built-in applications under load, disturb them, start them again with "
        "the same command, and compare input, output and state with an oracle.",
    )
    add_options(parser, CASES)
    parser.add_argument(
        "--faults",
        "--deeds",  # the former name
        type=_faults,
        default=(Fault.KILL,),
        metavar="FAULT,...",
        help="as in `wallaroo verify`; or partition, alone: hosts that cannot reach each other, "
        "with executors in network namespaces, as root",
    )
    parser.add_argument(
        "--changes",
        type=changes_of,
        default=(),
        metavar="CHANGE,...",
        help="run on a cluster of this machine that changes so instead of killing single "
        f"processes: {', '.join(CHANGES)}; 'pairs': every order of two of the first four; "
        "'failures': all the others",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="with --changes and --faults partition: workers at the start (default: %(default)s)",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        choices=(0, 1),
        default=0,
        help="with --changes: as in `wallaroo run` (default: %(default)s)",
    )
    parser.add_argument(
        "--store",
        action="store_true",
        help="with --faults partition: the checkpoint is in an object store on a host of its own, "
        "and no two hosts share a folder",
    )
    parser.set_defaults(handler=verification_command)
    return parser


def _faults(text: str) -> tuple[Fault, ...]:
    parts = text.split(",")
    others = [part for part in parts if part != Fault.PARTITION.value]
    partitions = (Fault.PARTITION,) if len(others) < len(parts) else ()
    return (*partitions, *(faults_of(",".join(others)) if others else ()))


def changes_of(text: str) -> tuple[str, ...]:
    """Parse changes, such as ``grow1,kill``, or ``pairs`` or ``failures``."""
    named = {"pairs": every_pair(1, PAIRS_WORKERS_MAX, 2), "failures": FAILURES}
    changes = named.get(text, tuple(text.split(",")))
    unknown = [change for change in changes if change not in CHANGES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is no change; the changes are {', '.join(CHANGES)}, pairs, failures"
        )
    return changes


def verification_command(options: argparse.Namespace) -> int:
    """Verify each chosen case; return the exit code."""
    if options.receiver and options.app in ("all", *CASES) and options.app != "sequence":
        raise wrong(
            "--receiver goes with --app sequence and with applications of your own.",
            "Add --app sequence, or leave --receiver out.",
        )
    if options.host == IN_PROCESS and (options.changes or Fault.PARTITION in options.faults):
        raise wrong(
            "--host in-process has no --changes and partitions, which need Spark.", "Omit --host."
        )
    if options.store and Fault.PARTITION not in options.faults:
        raise wrong("--store goes with --faults partition.", "Leave it out.")
    if options.changes and not workers_after(options.changes, options.workers):
        raise wrong(
            f"--changes {','.join(options.changes)} leaves none of {options.workers} workers, and "
            "nothing can be compared then.",
            "Add revive or grow1 at the end.",
        )
    if Fault.PARTITION in options.faults:
        _refuse_with_partitions(options)
    is_on_cluster = options.changes or Fault.PARTITION in options.faults
    place = ON_CLUSTER if is_on_cluster else ""
    return verify_all(options, _cases(options), _verify, place + IN_STORE * options.store)


def _cases(options: argparse.Namespace) -> dict[str, type[Case]]:
    if options.app == "all":
        return CASES
    name = Path(options.app).stem
    return {name: CASES[options.app] if options.app in CASES else own_case(options)}


def _refuse_with_partitions(options: argparse.Namespace) -> None:
    if options.faults != (Fault.PARTITION,) or options.changes or options.receiver:
        raise wrong(
            "--faults partition runs on hosts of its own, without other faults, --changes and "
            "--receiver.",
            "Leave the others out.",
        )
    reason = unsupported_reason()
    if reason:
        raise wrong(f"--faults partition: {reason}.", "Run it as root on Linux.")


def _verify(chosen: VerifyOptions, folder: Path, options: argparse.Namespace) -> Result:
    if Fault.PARTITION in options.faults:
        return verify_partitions(
            chosen, folder, options.workers, options.quiet, is_stored=options.store
        )
    if options.changes:
        return verify_scaling(
            chosen,
            folder,
            options.changes,
            options.workers,
            options.quiet,
            replicas=options.replicas,
        )
    return verify(chosen, folder, options.quiet, options.receiver or "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
