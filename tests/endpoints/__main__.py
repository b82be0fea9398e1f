"""``python -m tests.endpoints``: an application between two systems, its processes and the systems'
killed, held and restarted, and what came out read by an independent client.

Where it runs: the verifier; the application and the systems are its children.

    python -m tests.endpoints --ends kafka-kafka --faults 100 --record
"""

from __future__ import annotations

import argparse
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.endpoints.feeding import Feeding
from tests.endpoints.report import Result, record
from tests.endpoints.systems import ENDS, Ends, opened
from tests.endpoints.trial import HOSTS, Trial
from tests.endpoints.watching import Watching
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.options import HostKind
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.storage import LocalStorage
from wallaroo.testing.verify.trial.supervised import Supervised


def verify(ends: str, options: argparse.Namespace, folder: Path) -> Result:
    """Disturb one pair of ends; return what was found."""
    began = time.monotonic()
    checkpoint = folder / "checkpoint"
    with opened(ends, folder, options.seed) as there:
        arguments = ["--no-live", "--checkpoint", str(checkpoint), *HOSTS[options.host].options]
        arguments += ["tests.endpoints.application", *there.arguments]
        program = HOSTS[options.host].program
        run = Supervised(arguments, folder / "run.log", _quiet, program=program)
        commits = CommitLog(LocalStorage(str(checkpoint), False))
        feeding = Feeding(there.source, there.oracle, options.rate)
        watching = Watching(there.sinks, there.oracle)
        trial = Trial(
            run,
            commits,
            feeding,
            there.systems,
            there.deeds,
            HOSTS[options.host].weights,
            random.Random(options.seed),
            max(options.away, there.oracle.away_s),
        )
        run.start()
        watching.start()
        try:
            if not there.has_snapshot:
                feeding.start()
            trial.wait_for(lambda: bool(commits.batches()), "first commit")
            if there.has_snapshot:
                feeding.start()
            trial.disturb(options.faults, time.monotonic() + options.seconds)
            trial.progress()
            feeding.finish()
            with trial.noting():  # what is missing is judged
                trial.wait_for_output(lambda: _is_out(there), "output of everything")
            code = run.stop()
            if code:
                trial.unexplained.append(f"exit code {code} when it was asked to stop")
        finally:
            run.kill()
            found = watching.finish()
        outputs = sum(
            there.oracle.judge(number, sink.lines(), found)
            for number, sink in enumerate(there.sinks)
        )
    stored = CheckpointReader(checkpoint).at().entries()
    there.oracle.judge_state(((entry.key, pickle.loads(entry.raw)) for entry in stored), found)
    return Result(
        ends=ends,
        host=options.host,
        seed=options.seed,
        seconds=round(time.monotonic() - began),
        starts=run.starts,
        events=feeding.sent,
        outputs=outputs,
        readings=watching.readings,
        faults=dict(sorted(trial.done.items())),
        lost=found.lost,
        duplicated=found.duplicated,
        out_of_order=found.out_of_order,
        wrong=found.wrong + found.wrong_state,
        unexplained=[*found.examples, *trial.unexplained],
    )


def _tried(ends: str, options: argparse.Namespace) -> Result:
    """Disturb one pair of ends, and say what was found; what a failure left stays in its folder."""
    folder = Path(tempfile.mkdtemp(prefix="wallaroo-endpoints-"))
    is_clean = False
    try:
        result = verify(ends, options, folder)
        is_clean = result.is_clean
        print(result, flush=True)
    finally:
        if is_clean:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"everything is in {folder}", file=sys.stderr, flush=True)
    return result


def _is_out(ends: Ends) -> bool:
    return all(ends.oracle.is_out(number, sink.known()) for number, sink in enumerate(ends.sinks))


def _quiet(text: str) -> None:
    """Starts are counted, not printed."""


def main() -> int:
    """Disturb each pair of ends that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.endpoints", description=__doc__)
    parser.add_argument("--ends", default=",".join(ENDS), help="which, of: %(default)s")
    parser.add_argument(
        "--host", choices=HOSTS, default=HostKind.RESIDENT.value, help="default: %(default)s"
    )
    parser.add_argument("--faults", type=int, default=30, help="per pair of ends")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after the first commit"
    )
    parser.add_argument(
        "--away",
        type=float,
        default=3.0,
        help="seconds that a system is away at most; of sessions, 20 at least",
    )
    parser.add_argument("--rate", type=float, default=200.0, help="events per second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="add it to the table in docs/")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    is_clean = True
    for ends in options.ends.split(","):
        result = _tried(ends, options)
        if options.record and result.faults:
            record(result)
        is_clean &= result.is_clean
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
