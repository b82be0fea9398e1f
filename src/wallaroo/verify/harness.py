"""A verification: run, load and receiver on one side, kills on the other, the oracle at the end.

Where it runs: the verifier, a process of its own; the run is its child.

Invariant: only processes of the run die.  Senders go on from what the ingress acknowledged, the
receiver says what it has; both stay up. In the end the load stops, everything sent must be in a
commit, the run is stopped cleanly, and output and state are compared with the oracle's.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from wallaroo.errors import PeerError
from wallaroo.inspection.reader import CheckpointReader
from wallaroo.local_cluster.hosts import free_ports
from wallaroo.state.commits import CommitLog
from wallaroo.state.storage import LocalStorage
from wallaroo.verify.cases import CASES, Case
from wallaroo.verify.killer import Deed, Kill, schedule
from wallaroo.verify.ledger import Faults
from wallaroo.verify.load import Load, Send
from wallaroo.verify.nemesis import SIGNALS, Nemesis
from wallaroo.verify.orders import Orders
from wallaroo.verify.processes import Kind
from wallaroo.verify.result import Result
from wallaroo.verify.supervised import Supervised, describe

POLL_S = 0.02
# without a batch or an output: the run hangs.  A machine with ten times more to do than cores takes
# minutes to start Spark.
PROGRESS_S_MAX = 600.0
LETTERS = "dead.jsonl"
BLAMES_ITSELF = 70  # exit code of a run that takes an error for a mistake of its own

Say = Callable[[str], None]


class Inbox(Protocol):
    """The resuming receiver, as far as the harness looks."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""

    @property
    def count(self) -> int:
        """Bytes so far."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What to verify, how hard."""

    case: str = "sequence"
    kills: int = 20
    seed: int = 1
    seconds: float = float("inf")  # no kill after this time
    rate: float = 2000.0  # events per second and source
    kinds: tuple[Kind, ...] = tuple(Kind)
    deeds: tuple[Deed, ...] = (Deed.KILL,)
    together: int = 1  # so many at once
    is_enough: Callable[[], bool] = lambda: False  # whether nothing more is to be done
    own: type[Case] | None = None  # a user's oracle, for an application that is not in CASES
    is_plain: bool = False  # whether the receiver is a plain TCP one, which cannot say what it has
    # fault points, such as commit.before:3: the first starts of the run kill themselves there
    faults: tuple[str, ...] = ()
    host: str = "127.0.0.1"  # where senders reach the run
    # of each source: so many events, where that is not up to the disturbances
    events: tuple[tuple[str, int], ...] = ()
    run_options: tuple[str, ...] = ("--master", "local[2]", "--batch-time", "0.5")
    program: tuple[str, ...] = ("wallaroo", "run")  # the module that runs it, and what comes first


@dataclass(slots=True)
class Verification:
    """One verification in ``folder`` (checkpoint, log, output)."""

    options: VerifyOptions
    folder: Path
    inbox: Inbox
    output: Path  # where the inbox writes
    send: Send
    say: Say = print
    _case: Case = field(init=False)
    _run: Supervised = field(init=False)
    _loads: list[Load] = field(init=False)
    _result: Result = field(init=False)
    _nemesis: Nemesis = field(init=False)
    _storage: LocalStorage = field(init=False)
    _commits: CommitLog = field(init=False)
    _killed_at: dict[Kind, float] = field(default_factory=dict)  # kills not recovered from yet
    _mark: tuple[int, int] = (-1, 0)  # last commit and bytes received when the last kill struck
    _explained: list[float] = field(default_factory=list)  # until when a deed explains an end

    def __post_init__(self) -> None:
        options = self.options
        self._case = (options.own or CASES[options.case])(options.seed)
        self._result = Result(
            options.case,
            options.seed,
            dict.fromkeys(options.kinds, 0),
            {kind: [] for kind in options.kinds},
        )
        self._storage = LocalStorage(str(self.folder / "checkpoint"), False)
        self._commits = CommitLog(self._storage)
        sources = self._case.sources
        ports = free_ports(2 * len(sources))
        plain = ports[: len(sources)]
        acked = ports[len(sources) :]
        self._run = Supervised(
            self._arguments(plain, acked),
            self.folder / "run.log",
            self.say,
            options.faults,
            program=options.program,
        )
        self._nemesis = Nemesis(
            self._run,
            self.folder,
            options.seed,
            self,
            self._result,
            self.say,
            Orders(self.folder / "orders"),
            is_low_latency="low" in options.run_options,
        )
        self._loads = [
            Load(
                self._case, source, port, options.rate, self.send, dict(options.events).get(source)
            )
            for source, port in zip(sources, acked, strict=True)
        ]

    def _arguments(self, plain: Sequence[int], acked: Sequence[int]) -> list[str]:
        sources = self._case.sources
        host, port = self.inbox.address
        files = ["--files", str(self.folder / "files")] if self._case.has_files else []
        receiving = ["--plain"] if self.options.is_plain else []
        letters = ["--dead", str(self.folder / LETTERS)] if self._case.has_letters else []
        return [
            *(
                "--no-live",
                "--checkpoint",
                str(self.folder / "checkpoint"),
                "--summary",
                str(self.folder / "summary.json"),
            ),
            *(
                part
                for source, at in zip(sources, acked, strict=True)
                for part in ("--acknowledged", f"{source}={at}")
            ),
            *(*self.options.run_options, self._case.module),
            *(
                "--in",
                ",".join(
                    f"{source}@{self.options.host}:{at}"
                    for source, at in zip(sources, plain, strict=True)
                ),
            ),
            *("--out", f"{host}:{port}", *files, *letters, *receiving),
        ]

    @property
    def case(self) -> Case:
        """The case, with what it saw."""
        return self._case

    @property
    def sent(self) -> tuple[tuple[str, int], ...]:
        """How many events of each source were acknowledged."""
        counts = (load.sent for load in self._loads)
        return tuple(zip(self._case.sources, counts, strict=True))

    # -- the course
    # ----------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Do it all.  Raises PeerError where the run hangs or cannot be started."""
        began = time.monotonic()
        self._run.start()
        try:
            for load in self._loads:
                load.start()
            self.await_(self._has_progressed, PROGRESS_S_MAX, "the first output")
            self._die_at_faults()
            self._disturb(time.monotonic())  # the time to start is not taken from --seconds
            self.await_(self._has_progressed, PROGRESS_S_MAX, "output after the last kill")
            self._finish()
        finally:
            self._run.kill()
        self._judge()
        self._result.seconds = time.monotonic() - began
        return self._result

    def _die_at_faults(self) -> None:
        count = len(self.options.faults)
        self.await_(
            lambda: self._run.starts > count,
            PROGRESS_S_MAX * max(1, count),
            "the run to die at its fault points",
        )
        self._result.disturbances += count
        self._mark = self._position()

    def _disturb(self, began: float) -> None:
        """Kill what the options say, one after the other."""
        for number, planned in enumerate(
            schedule(
                self.options.kills,
                self.options.seed,
                self.options.kinds,
                deeds=self.options.deeds,
                together=self.options.together,
            ),
            1,
        ):
            if time.monotonic() - began > self.options.seconds or self.options.is_enough():
                break
            self._strike(number, planned)

    def _strike(self, number: int, planned: Kill) -> None:
        if not planned.is_hurried:
            self.await_(self._has_progressed, PROGRESS_S_MAX, "output after a disturbance")
        self.pause(planned.pause_s)
        if self._nemesis.do(number, planned):
            self._mark = self._position()
            if planned.deed in SIGNALS:
                self._killed_at.setdefault(planned.kind, time.monotonic())

    def expect_end(self, seconds: float) -> None:
        """A deed explains one end of the run, if it comes within that time."""
        self._explained = sorted([*self._explained, time.monotonic() + seconds])

    def _finish(self) -> None:
        for load in self._loads if not self.options.events else ():
            load.finish()
        most = max((count for _, count in self.options.events), default=0)
        self.await_(
            lambda: all(load.has_ended for load in self._loads),
            PROGRESS_S_MAX + most / self.options.rate,
            "the last acknowledgements",
        )
        self._result.events = sum(load.sent for load in self._loads)
        self.await_(self._is_all_committed, PROGRESS_S_MAX, "everything sent to be processed")
        self._await_quiet_inbox()
        code = self._run.stop()
        if code != 0:
            self._result.ended_by_itself.append(
                f"{describe(code)} when it was asked to stop:\n{self._run.tail()}"
            )
        self._result.starts = self._run.starts

    def _await_quiet_inbox(self) -> None:
        """The last batch's output is on its way: wait while the receiver still gets something."""
        seen = self.inbox.count
        at = time.monotonic()

        def is_quiet() -> bool:
            nonlocal seen, at
            if self.inbox.count != seen:
                seen = self.inbox.count
                at = time.monotonic()
            return time.monotonic() - at > 1.0

        self.await_(is_quiet, PROGRESS_S_MAX, "the receiver to have everything")

    def _judge(self) -> None:
        faults = self._result.faults
        received = Faults() if self.options.is_plain else faults
        self._result.outputs = self._case.judge(lines_of([self.output]), received)
        if self.options.is_plain:  # at least once, in order: repetitions are allowed here only
            self._result.repeated = received.duplicated
            received.duplicated = 0
            faults.add(received)
        if self._case.has_files:
            self._case.judge(lines_of(sorted((self.folder / "files").glob("part-*"))), faults)
        if self._case.has_letters:
            self._result.letters = self._case.judge_letters(
                lines_of([self.folder / LETTERS]), faults
            )
        stored = CheckpointReader(self.folder / "checkpoint").at().entries()
        self._case.judge_state(((entry.key, pickle.loads(entry.raw)) for entry in stored), faults)

    # -- looking
    # ----------------------------------------------------------------------------------------------

    def _position(self) -> tuple[int, int]:
        batches = self._commits.batches()
        return (batches[-1] if batches else -1), self.inbox.count

    def _has_progressed(self) -> bool:
        """Whether a batch was committed and output received since the last kill; notes the
        recovery.
        """
        batch, received = self._position()
        if batch <= self._mark[0] or received <= self._mark[1]:
            return False
        for kind, at in self._killed_at.items():
            self._result.recoveries[kind].append(time.monotonic() - at)
        self._killed_at.clear()
        self._run.has_progressed()
        return True

    def _is_all_committed(self) -> bool:
        last = CommitLog(self._storage).last()
        offsets = last.offsets if last else {}
        sent = zip(self._case.sources, self._loads, strict=True)
        return all(offsets.get(source, [0, 0])[1] == load.sent for source, load in sent)

    def _look(self) -> None:
        """Keep the run alive; note an end that no deed explains."""
        if self._run.has_ended:
            self._judge_end()
            self._run.look()
        for load in self._loads:
            if load.error is not None:
                raise load.error

    def _judge_end(self) -> None:
        now = time.monotonic()
        self._explained = [until for until in self._explained if until > now]
        is_refused = self._nemesis.after_end()  # by its own words: explains no other end
        is_explained = is_refused or bool(self._explained)
        code = self._run.code
        is_planned = self._run.starts <= len(self.options.faults)
        if code == BLAMES_ITSELF or not (is_explained or is_planned):
            self._result.ended_by_itself.append(
                f"{describe(code)} (start {self._run.starts}); see run.log"
            )
        if not is_refused:
            self._explained = self._explained[1:]

    def pause(self, seconds: float) -> None:
        """Let the run be for a while, started again where it dies."""
        until = time.monotonic() + seconds
        while (rest := until - time.monotonic()) > 0:
            self._look()
            time.sleep(min(POLL_S, rest))

    def await_(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait until something is so, and keep the run alive meanwhile.  Raises PeerError where it
        takes longer.
        """
        until = time.monotonic() + seconds
        while not condition():
            self._look()
            if time.monotonic() > until:
                raise PeerError(
                    f"Not within {seconds:.0f} s: {what}. The log of the run ends "
                    f"so:\n{self._run.tail()}"
                )
            time.sleep(POLL_S)


def lines_of(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of all files, without newlines."""
    for path in files:
        with path.open("rb") as file:
            for line in file:
                yield line.removesuffix(b"\n")
