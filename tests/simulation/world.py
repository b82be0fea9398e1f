"""Simulated processes around one checkpoint: clients, ingress, driver with its tasks, egress.

There are several drivers at a time if one takes the checkpoint over from another.

Where it runs: the simulation's process, one thread.  Only what a scheduler decides is simulated;
spool, state, tasks, sinks, commit protocol and recovery are the product's own.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.simulation.application import SOURCES
from tests.simulation.system import Process, System
from wallaroo.connectors.tcp.egress.loop import Egress
from wallaroo.connectors.tcp.egress.machine import RELEASE_S
from wallaroo.connectors.tcp.egress.states import Committer
from wallaroo.connectors.tcp.pipe import (
    GREETING,
    OFFSET,
    EgressConfig,
    Message,
)
from wallaroo.connectors.tcp.progress import ProgressFile
from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.folders import make_private
from wallaroo.durable.locks import lock_file
from wallaroo.engine.report import TaskReport
from wallaroo.ingress.source_store import SourceStore, open_store
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.runtime.batch.admission import plan_ends
from wallaroo.runtime.batch.batch_metrics import BatchMetrics
from wallaroo.runtime.batch.batches import Batches, BatchSetup
from wallaroo.runtime.batch.commit_protocol import ATTEMPTS, BatchProtocol, history_of
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.runtime.batch.pacing import Pacer
from wallaroo.runtime.recovery import step_table
from wallaroo.runtime.tasks.job import BatchJob, Deployment
from wallaroo.runtime.tasks.task import run_level
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.sources.log import LogContext, SourceLog, from_stored
from wallaroo.spool import folder_of
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint

FRAME = struct.Struct(">I")
STREAM = b"client"
BACKLOG_BYTES_MAX = 1 << 30
RETAIN = 2
FOREVER_S = 1e9
FULL_RETRIES = 2
RECONNECTS = 0.1  # share of chunks before which the client connects again


@dataclass(slots=True)
class Client:
    """One sender of acknowledged messages: what it has, and what was acknowledged to it."""

    payloads: list[bytes]
    acknowledged: int = 0


@dataclass(slots=True)
class Receiver:
    """A resuming receiver that stays up."""

    received: bytearray = field(default_factory=bytearray)


class LostError(Exception):
    """A client was promised more than is there."""


class UnseenError(Exception):
    """A standby has ended a run that is not the one whose lease stood still."""


class Ingress:
    """The process that writes the spools."""

    def __init__(self, system: System, root: Path, checkpoint: str, clients: dict[str, Client]):
        self.process = Process("ingress")
        self._system = system
        self._clients = clients
        self._retries = FULL_RETRIES
        self._root = root
        self._checkpoint = checkpoint
        self._connections: dict[str, int] = {}
        self.stores: dict[str, SourceStore] = {}

    def start(self) -> None:
        """Open the spools."""
        with self._system.running(self.process):
            for name in SOURCES:
                store = open_store(
                    folder_of(self._root / "spool", name),
                    is_durable=True,
                    checkpoint=self._checkpoint,
                    backlog_bytes_max=BACKLOG_BYTES_MAX,
                    is_stopping=self._is_stopping,
                    log=_ignore,
                )
                self.stores[name] = store
                self._connections[name] = store.opened()
                stored = store.streams.counts.get(STREAM, 0)
                known = self._clients[name].acknowledged
                if stored < known:
                    raise LostError(
                        f"source {name}: {known} messages were acknowledged, {stored} are stored"
                    )

    def _is_stopping(self, seconds: float) -> bool:
        self._retries -= 1
        return self._retries < 0

    def step(self, chance: random.Random) -> None:
        """Take some messages of one client, as an ingress does."""
        self._retries = FULL_RETRIES
        name = chance.choice(SOURCES)
        client, store = self._clients[name], self.stores[name]
        with self._system.running(self.process):
            for _ in range(chance.randint(1, 3)):
                start = store.streams.counts.get(STREAM, 0)
                taken = client.payloads[start : start + chance.randint(1, 6)]
                if taken:
                    frames = b"".join(FRAME.pack(len(one)) + one for one in taken)
                    store.append(frames, len(taken), self._connection(name, chance), STREAM)
            store.publish()
            client.acknowledged = max(client.acknowledged, store.streams.counts.get(STREAM, 0))
            if chance.random() < 0.3:
                store.remove_consumed()

    def _connection(self, name: str, chance: random.Random) -> int:
        """The client's connection: now and then a new one."""
        if chance.random() < RECONNECTS:
            self.stores[name].closed(self._connections[name])
            self._connections[name] = self.stores[name].opened()
        return self._connections[name]


class Attempts:
    """A TaskRunner whose tasks are attempted again, late, or cut off, as a cluster's are."""

    def __init__(self, chance: random.Random, again: float):
        self._chance = chance
        self._again = again
        self._late: deque[Iterator[Any]] = deque()  # attempts that still run and are not needed
        self._refused = (-1, 0)  # a batch, and how often its reports were not whole

    @property
    def tasks_max(self) -> int:
        return 3

    def tasks(self, wanted: int) -> int:
        return self._chance.choice((1, 1, 2, 2, 3))

    def readers(self, wanted: int) -> int:
        return self.tasks_max

    def run_batch(self, job: BatchJob) -> list[TaskReport]:
        if job.batch != self._refused[0]:
            self._refused = (job.batch, 0)
        widths = job.widths
        reports: list[TaskReport] = []
        received: list[list[Any]] = [[] for _ in range(widths[0])]
        for level, width in enumerate(widths):
            given: list[list[Any]] = [[] for _ in range(max(job.tasks, width))]
            order = list(range(width))
            self._chance.shuffle(order)
            for task in order:
                for passed in self._task(job, level, task, received[task]):
                    if isinstance(passed, TaskReport):
                        reports.append(passed)
                    else:
                        given[passed[0]].append(passed)
            received = given
        return self._arrived(reports)

    def _arrived(self, reports: list[TaskReport]) -> list[TaskReport]:
        """Lose the last reports on their way, if the batch will be run again."""
        batch, refused = self._refused
        if refused == ATTEMPTS - 1 or self._chance.random() > self._again / 4:
            return reports
        self._refused = (batch, refused + 1)
        return reports[: self._chance.randrange(len(reports))]

    def _task(self, job: BatchJob, level: int, task: int, records: list[Any]) -> list[Any]:
        """Run a task; where it runs twice, each consumer gets the records of either attempt."""
        first = run_level(job, level, task, list(records), collect_after_ms=FOREVER_S)
        if self._chance.random() > self._again:
            return list(first)
        luck = self._chance.random()
        if luck < 0.3:  # it dies in the middle; another one does its work
            next(first, None)
            first.close()  # type: ignore[attr-defined]
            return list(run_level(job, level, task, list(records), collect_after_ms=FOREVER_S))
        if luck < 0.6:  # it is slow: another one does its work, it continues later
            next(first, None)
            self._late.append(first)
            return list(run_level(job, level, task, list(records), collect_after_ms=FOREVER_S))
        one, other = (
            list(first),
            list(run_level(job, level, task, list(records), collect_after_ms=FOREVER_S)),
        )
        batch, refused = self._refused
        if level + 1 == job.levels or refused == ATTEMPTS - 1:
            return self._chance.choice((one, other))
        self._refused = (batch, refused + 1)
        chosen = [self._chance.random() < 0.8 for _ in range(job.tasks)]
        return [r for r in one if chosen[r[0]]] + [r for r in other if not chosen[r[0]]]

    def go_on(self) -> None:
        """Let a late attempt end: what it gives is not read."""
        if self._late:
            deque(self._late.popleft(), maxlen=0)

    def close(self) -> None:
        """End all late attempts."""
        for attempt in self._late:
            attempt.close()  # type: ignore[attr-defined]
        self._late.clear()

    def batch_done(self, job: BatchJob, reports: Sequence[TaskReport], seconds: float) -> str:
        return ""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return ()


class SimulatedLoop(Egress):
    """The egress's own loop, whose attempts to connect reach the simulated receiver at once."""

    receiver: Receiver

    def _dial(self) -> None:
        self._connection = SimulatedConnection(self.receiver)  # type: ignore[assignment]
        self.execute(self.machine.connect())


class SimulatedEgress:
    """In place of `EgressProcess`: the egress's own loop, a turn at a time, over a connection to
    the simulated receiver.
    """

    def __init__(
        self, system: System, receiver: Receiver, config: EgressConfig, hooks: tuple[Any, ...]
    ):
        self.process = Process("egress")
        self.pid = 0
        self.is_open = True  # of the pipe
        self.has_output = False
        self._system = system
        self._receiver = receiver
        self._config = config
        self._receive, self._pull, self._restart, _ = hooks
        self._egress: SimulatedLoop | None = None
        self._now = 0.0

    def start(self) -> None:
        """Begin, or begin again after a death."""
        self.process = Process("egress")
        with self._system.running(self.process):
            staging = Path(self._config.staging)
            lock = lock_file(staging / "lock")
            record = ProgressFile(staging, self._config.is_durable)
            self.send(ready=True, acked=record.progress.acked)
            self._egress = SimulatedLoop(self._config, record, self, lock)  # type: ignore[arg-type]
            self._egress.receiver = self._receiver

    def restart(self) -> None:
        """Take the place of one that died."""
        self._restart()
        self.start()

    def step(self, chance: random.Random) -> None:
        """Make a turn."""
        egress = self._egress
        assert egress is not None
        with self._system.running(self.process):
            egress.receive_messages()
            if egress.machine.committer is Committer.LISTING:
                return
            egress.settle(self._now)  # connects where there is no connection
            if (connection := egress._connection) is None:
                return
            egress.read(connection)
            if egress.machine.has_output:
                egress.execute(egress.machine.send(chance.randint(1, 200)))
            connection.say()  # type: ignore[attr-defined]
            if chance.random() < 0.5:
                self._now += RELEASE_S
            egress.read(connection)
            egress.settle(self._now)

    # -- as the committer sees it

    def wake(self) -> None:
        """It is asked at its next turn."""

    def close(self, seconds: float) -> None:
        """The simulation closes it."""

    # -- as the egress sees its pipe

    def send(self, **message: Any) -> None:
        self._receive(message)

    def receive(self) -> list[Message]:
        messages: list[Message] = []
        while (message := self._pull()) is not None:
            messages.append(message)
        return messages

    def flush(self) -> None:
        """Nothing waits."""

    @property
    def is_congested(self) -> bool:
        return False


class SimulatedConnection:
    """A connection to the receiver that loses nothing."""

    has_rest = False

    def __init__(self, receiver: Receiver):
        self._receiver = receiver
        self._words = GREETING + OFFSET.pack(len(receiver.received))

    def begin(self, start: int) -> None:
        """The receiver keeps what it has."""

    def acked(self) -> None:
        """No kernel counts here."""

    def say(self) -> None:
        """The receiver says how much it has."""
        self._words += OFFSET.pack(len(self._receiver.received))

    def send(self, views: Sequence[memoryview]) -> int:
        joined = b"".join(views)
        self._receiver.received += joined
        return len(joined)

    def recv(self, count: int) -> bytes:
        if not self._words:
            raise BlockingIOError
        words, self._words = self._words[:count], self._words[count:]
        return words

    def close(self) -> None:
        """Nothing to close."""


class Driver:
    """The process that begins batches and commits them."""

    def __init__(
        self,
        system: System,
        root: Path,
        plan: Plan,
        chance: random.Random,
        again: float,
        begin_ingress: Callable[[Checkpoint], None],
        tuning: Tuning,
        run_max: int = 0,
        is_taking_over: bool = False,
        after: int | None = None,
    ):
        self.after = after  # of a standby: the epoch that it saw
        self._tuning = tuning
        self._run_max = run_max
        self._is_taking_over = is_taking_over
        self.process = Process("driver")
        self.checkpoint: Checkpoint | None = None
        self._system = system
        self._chance = chance
        self._root = root
        self.runner = Attempts(chance, again)
        self.committers: dict[str, SinkCommitter] = {}
        self.batches: Batches | None = None
        self.logs: dict[str, SourceLog] = {}
        self._plan = plan
        self._begin_ingress = begin_ingress

    def start(self) -> None:
        """Recover, as ``runtime.lifecycle.start`` does."""
        plan, root = self._plan, self._root
        with self._system.running(self.process):
            checkpoint = self.checkpoint = open_checkpoint(
                root, is_durable=True, is_taking_over=self._is_taking_over, after=self.after
            )
            if self.after is not None and checkpoint.claim.epoch != self.after + 1:
                raise UnseenError("a standby took over from a run that it had not seen")
            committed = from_stored(checkpoint.last.offsets) if checkpoint.last else {}
            context = LogContext(root / "spool", checkpoint.id)
            configs = [source.config for source in plan.sources]
            self.logs = {config.name: config.open_log(context) for config in configs}
            for name, position in committed.items():
                self.logs[name].require(position)
            self._begin_ingress(checkpoint)
            self._open_sinks(checkpoint)
            logs = tuple(self.logs.values())
            beginnings = {name: log.beginning() for name, log in self.logs.items()}
            view = str(checkpoint.view_root)
            housekeeping = Housekeeping(
                checkpoint, plan.key_groups, RETAIN, FOREVER_S, tuning=self._tuning
            )
            if self._run_max:
                checkpoint.commits.append_from_here(run_max=self._run_max)
            steps = step_table(checkpoint.last, plan.step_names, frozenset())
            protocol = BatchProtocol(
                plan, checkpoint, self.committers, housekeeping, self.logs, steps
            )
            deployment = Deployment.of(plan, (), root, logs, view, checkpoint.id, True)
            self.batches = Batches(
                BatchSetup(plan, replace(deployment, tuning=self._tuning), steps, logs, beginnings),
                protocol=protocol,
                housekeeping=housekeeping,
                runner=self.runner,
                accounts=BatchMetrics(plan, RunMeter("simulated", 0.0)),
                pacer=Pacer(1.0),
            )
            if self._chance.random() < 0.2:
                self.batches.warm_up()

    def _open_sinks(self, checkpoint: Checkpoint) -> None:
        last = checkpoint.last
        for sink in self._plan.sinks:
            folder = checkpoint.root / "outbox" / sink.name
            make_private(folder, is_durable=True)
            committer = self.committers[sink.name] = sink.config.committer(sink.name, folder, True)
            tokens = last.sinks.get(sink.name, []) if last else []
            committer.recover(history_of(checkpoint, sink.name), tokens)

    def step(self) -> bool:
        """Run a batch of what there is, or of nothing where one is due; False where there is none
        to run.
        """
        batches = self.batches
        assert batches is not None
        with self._system.running(self.process):
            if self._chance.random() < 0.3:
                self.runner.go_on()
            start = batches.ends
            ends = plan_ends(start, self.logs, self._chance.randint(1, 40))
            if ends == start and not batches.is_due:
                return False
            batches.run(ends)
            return True

    def end(self) -> None:
        """What is left when the process is gone."""
        self.process.is_dead = True
        self.runner.close()
        if self.checkpoint is not None:
            self.checkpoint.lock.close()
            self.checkpoint.claim.release()

    @property
    def is_taken_over(self) -> bool:
        """Whether another driver owns the checkpoint, as far as this one could know."""
        return self.checkpoint is None or not self.checkpoint.owner.is_held


def _ignore(line: str) -> None:
    """Log nowhere."""


__all__ = ["Client", "Driver", "Ingress", "LostError", "Receiver", "SimulatedEgress", "UnseenError"]
