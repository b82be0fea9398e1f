"""A verification: a run under load, disturbances, and the oracle's verdict.

Where it runs: the verifier, a process of its own; the run is its child.

Invariant: only processes of the run die.  Senders continue after the last event the ingress
acknowledged, the receiver reports the bytes it has; both stay up.  In the end the load stops,
everything sent must be in a commit, the run is stopped cleanly, and output and state are compared
with the oracle's.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from wallaroo.checkpoints.inspection.keyed import StoredEntry
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.errors import CheckpointError
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.state.store.stored_checkpoint import checkpoint_folder
from wallaroo.testing.verify.cases import Case
from wallaroo.testing.verify.disturbances.damage import BitFlips
from wallaroo.testing.verify.injectors import PROGRESS_S_MAX, Disturbances, Injection, Kills, Say
from wallaroo.testing.verify.load import Load, RunWaits, Send
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.result import Faults, Result
from wallaroo.testing.verify.trial.supervised import (
    ReceivedOutputs,
    RunProgress,
    Supervised,
    describe,
)

LETTERS = "dead.jsonl"


class Verification:
    """A verification in ``folder`` (checkpoint, log); ``output``: the inbox's file."""

    def __init__(
        self,
        options: VerifyOptions,
        folder: Path,
        inbox: ReceivedOutputs,
        output: Path,
        send: Send,
        say: Say = print,
        disturbances: Callable[[Injection], Disturbances] = Kills,
    ):
        self.case = options.case(options.seed)
        self._output = output
        sources = self.case.sources
        ports = free_ports(2 * len(sources))
        plain = ports[: len(sources)]
        acked = ports[len(sources) :]
        self._loads = [
            Load(self.case, source, port, options.rate, send, dict(options.events).get(source))
            for source, port in zip(sources, acked, strict=True)
        ]
        result = Result(
            options.name,
            options.seed,
            dict.fromkeys(options.kinds, 0),
            {kind: [] for kind in options.kinds},
        )
        run = Supervised(
            _arguments(options, folder, self.case, inbox.address, plain, acked),
            folder / "run.log",
            say,
            options.fault_points,
            program=options.program,
        )
        flips = BitFlips(folder, result, say)
        watch = RunWaits(run, self._loads, flips, result)
        self._checkpoint = checkpoint_folder(_place(options, folder))
        progress = RunProgress(self._checkpoint, inbox, run, result)
        self._injection = Injection(options, folder, run, watch, progress, flips, result, say)
        self._disturbances = disturbances(self._injection)

    @property
    def sent(self) -> tuple[tuple[str, int], ...]:
        """Return the number of acknowledged events of each source."""
        counts = (load.sent for load in self._loads)
        return tuple(zip(self.case.sources, counts, strict=True))

    def run(self) -> Result:
        """Run the whole verification.  Raises PeerError if the run hangs or cannot be started."""
        began = time.monotonic()
        self._injection.run.start()
        try:
            for load in self._loads:
                load.start()
            self._injection.await_progress("the first output")
            self._die_at_faults()
            ready = time.monotonic()  # the time to start does not count for --seconds
            self._disturbances.disturb(ready)
            self._injection.await_progress("output after the last kill")
            self._finish()
        finally:
            self._injection.run.kill()
        self._judge()
        self._injection.result.seconds = time.monotonic() - began
        return self._injection.result

    def _die_at_faults(self) -> None:
        injection = self._injection
        count = len(injection.options.fault_points)
        injection.watch.await_(
            lambda: injection.run.starts > count,
            PROGRESS_S_MAX * max(1, count),
            "the run to die at its fault points",
        )
        injection.result.disturbances += count
        injection.progress.mark()

    def _finish(self) -> None:
        injection = self._injection
        for load in self._loads if not injection.options.events else ():
            load.finish()
        most = max((count for _, count in injection.options.events), default=0)
        injection.watch.await_(
            lambda: all(load.has_ended for load in self._loads),
            PROGRESS_S_MAX + most / injection.options.rate,
            "the last acknowledgements",
        )
        injection.result.events = sum(load.sent for load in self._loads)
        injection.watch.await_(
            lambda: injection.progress.is_all_committed(dict(self.sent)),
            PROGRESS_S_MAX,
            "everything sent to be processed",
        )
        self._await_quiet_inbox()
        code = injection.run.stop()
        if code != 0:
            injection.result.ended_by_itself.append(
                f"{describe(code)} when it was asked to stop:\n{injection.run.tail()}"
            )
        injection.result.starts = injection.run.starts

    def _await_quiet_inbox(self) -> None:
        """Wait until the receiver gets nothing more: the last batch's output may be in flight."""
        progress = self._injection.progress
        seen = progress.received
        at = time.monotonic()

        def is_quiet() -> bool:
            nonlocal seen, at
            if progress.received != seen:
                seen = progress.received
                at = time.monotonic()
            return time.monotonic() - at > 1.0

        self._injection.watch.await_(is_quiet, PROGRESS_S_MAX, "the receiver to have everything")

    def _judge(self) -> None:
        folder = self._injection.folder
        result = self._injection.result
        faults = result.faults
        is_plain = self._injection.options.is_plain
        received = Faults() if is_plain else faults
        result.outputs = self.case.judge(lines_of([self._output]), received)
        if is_plain:  # at least once, in order: only here are repetitions allowed
            result.repeated = received.duplicated
            received.duplicated = 0
            faults.add(received)
        if self.case.has_files:
            self.case.judge(lines_of(sorted((folder / "files").glob("part-*"))), faults)
        if self.case.has_letters:
            result.letters = self.case.judge_letters(lines_of([folder / LETTERS]), faults)
        stored = stored_entries(self._checkpoint, self._injection.flips)
        self.case.judge_state(((entry.key, pickle.loads(entry.raw)) for entry in stored), faults)
        result.unread = self._injection.flips.left


def stored_entries(checkpoint: Path, flips: BitFlips) -> list[StoredEntry]:
    """Return what steps keep after the last commit.

    Files with flipped bits that the run never read have to be refused by name here; such bits are
    flipped back.
    """
    while True:
        try:
            return list(CheckpointReader(checkpoint).at().entries())
        except CheckpointError as error:
            if not flips.undo_named(str(error)):
                raise


def lines_of(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of all files, without newlines."""
    for path in files:
        with path.open("rb") as file:
            for line in file:
                yield line.removesuffix(b"\n")


def _place(options: VerifyOptions, folder: Path) -> str:
    return options.checkpoint or str(folder / "checkpoint")


def _arguments(
    options: VerifyOptions,
    folder: Path,
    case: Case,
    receiver: tuple[str, int],
    plain: Sequence[int],
    acked: Sequence[int],
) -> list[str]:
    """Return the run's command line; ``plain`` and ``acked`` are the ports of the sources."""
    sources = case.sources
    host, port = receiver
    files = ["--files", str(folder / "files")] if case.has_files else []
    receiving = ["--plain"] if options.is_plain else []
    letters = ["--dead", str(folder / LETTERS)] if case.has_letters else []
    return [
        *(
            "--no-live",
            "--checkpoint",
            _place(options, folder),
            "--summary",
            str(folder / "summary.json"),
        ),
        *(
            part
            for source, at in zip(sources, acked, strict=True)
            for part in ("--acknowledged", f"{source}={at}")
        ),
        *options.run_options,
        *(("--host", options.host) if options.host else ()),
        *(("--latency", str(options.latency_ms)) if options.latency_ms else ()),
        case.module,
        *(
            "--in",
            ",".join(
                f"{source}@{options.address}:{at}"
                for source, at in zip(sources, plain, strict=True)
            ),
        ),
        *("--out", f"{host}:{port}", *files, *letters, *receiving),
    ]
