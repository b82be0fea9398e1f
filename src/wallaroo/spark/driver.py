"""One run of an application: feeders, Spark, the streaming query, sinks; from start to the last
batch boundary.

Where it runs: driver.  A thread of its own (``_watch``) starts everything, looks after it and ends
it; the handle only asks.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wallaroo.api.application import Application
from wallaroo.durable.folders import make_private
from wallaroo.errors import InternalError, PeerError, WallarooError
from wallaroo.ingress.process import Feeders
from wallaroo.inspection.compatibility import judge
from wallaroo.metrics.meter import RunMeter
from wallaroo.metrics.progress import Recovery
from wallaroo.metrics.status import RunStatus
from wallaroo.options import RunOptions
from wallaroo.plan.model import Plan
from wallaroo.range_server.client import RemoteSpool
from wallaroo.runtime.commit_protocol import history_of
from wallaroo.runtime.housekeeping import Housekeeping
from wallaroo.runtime.job import Deployment
from wallaroo.runtime.pacing import Pacer
from wallaroo.runtime.recovery import describe, step_table
from wallaroo.scratch import make_scratch, sweep_dead
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.spark.batches import BatchRunner
from wallaroo.spark.cluster import Place
from wallaroo.spark.control import Control, write_control
from wallaroo.spark.log import log
from wallaroo.spark.observer import Observer
from wallaroo.spark.query import JVM_GONE, failure_of, start_query
from wallaroo.spark.session import close_session, is_local, is_loopback, open_session
from wallaroo.spark.shipping import ship
from wallaroo.spool.check import check_spools
from wallaroo.spool.format import folder_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.status_api.server import StatusServer

WATCH_S = 0.1  # between two looks at feeders, sinks and the query
IDLE_TRIGGERS = 2  # looks at an idle query before it is taken for stopped at a boundary


def start(
    application: Application, options: RunOptions, session: SparkSession | None = None
) -> Run:
    """Start a run, in ``session`` if one is given (it stays open).

    What can be checked at once (ports, checkpoint, Java) is; the errors are in
    ``wallaroo.runner.run``.
    """
    run = Run(application, options, session)
    run.start()
    return run


class Run:
    """The handle; see ``wallaroo.runner.RunHandle``."""

    def __init__(
        self, application: Application, options: RunOptions, session: SparkSession | None = None
    ):
        self.application, self.options, self._session = application, options, session
        self.plan: Plan = replace(application.plan, key_groups=options.key_groups)
        self.addresses: dict[str, tuple[str, int]] = {}
        self.exception: WallarooError | None = None
        self._is_temporary = options.checkpoint is None
        sweep_dead()  # scratch folders of runs that were killed
        self._own_scratch = make_scratch()
        self._scratch = self._own_scratch.path
        self._master = str(session.sparkContext.master) if session else options.master
        self._is_local = is_local(self._master)
        self._root = (options.checkpoint or self._scratch / "checkpoint").absolute()
        self._is_stopping = threading.Event()
        self._end_state = "stopped"
        self._has_ended = threading.Event()
        self._is_up = threading.Event()
        self._closers: list[Callable[[], object]] = []
        self._control = Control()
        self._is_held = True
        self._control_lock = threading.Lock()  # batches end in one thread, sinks fill up in another
        self._began_at = time.time()
        self._meter = RunMeter(
            self.plan.application,
            time.time(),
            checkpoint="" if self._is_temporary else str(self._root),
            is_durable=not self._is_temporary,
        )
        self._thread = threading.Thread(target=self._live, name="wallaroo-run", daemon=True)

    # -- the handle

    def start(self) -> None:
        """Begin; return when input is accepted, or raise what kept it from that."""
        self._thread.start()
        self._is_up.wait()
        if self.exception is not None:
            self._has_ended.wait()
            raise self.exception

    def status(self) -> RunStatus:
        return self._meter.status(time.time())

    @property
    def meter(self) -> RunMeter:
        """What the run has counted; the status server reads it."""
        return self._meter

    def reset_latency(self) -> None:
        """Begin the latency figures anew, as after a warm-up."""
        self._meter.reset_latency()

    @property
    def root(self) -> Path:
        """The folder of state, spool and outbox: the checkpoint, or a temporary folder that goes
        away with the run.
        """
        return self._root

    def stop(self) -> None:
        self._is_stopping.set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._has_ended.wait(timeout)

    # -- the run's thread

    def _live(self) -> None:
        try:
            self._run()
        except WallarooError as error:
            self.exception = error
        except (Py4JError, ConnectionError, EOFError) as error:
            self.exception = PeerError(JVM_GONE)
            self.exception.__cause__ = error
        except Exception as error:  # noqa: BLE001  # the error gate of the driver
            self.exception = InternalError(
                f"the run ended in a way that this program does not expect: {type(error).__name__}: {error}"
            )
            self.exception.__cause__ = error
        self._close()
        self._meter.enter("failed" if self.exception else self._end_state)
        self._is_up.set()
        self._has_ended.set()

    def _run(self) -> None:
        self._meter.starting("opening the checkpoint")
        checkpoint = open_checkpoint(self._root, not self._is_temporary, self.options.is_fresh)
        self._closers.append(checkpoint.release)
        self._answer_queries()
        self._check_spools(checkpoint)
        self._judgement = judge(checkpoint, self.plan, self.options.allow_incompatible)
        for note in self._judgement.notes:
            log(note)
        self._meter.starting("opening sources")
        self._feeders = self._start_feeders(checkpoint)
        self._meter.starting("starting Spark")
        session = self._session or self._open_session()
        if not self._is_local:
            ship(session.sparkContext, self.options.module_paths, self._scratch)
        self._meter.starting("opening sinks")
        committers = self._open_sinks(checkpoint)
        batches = self._batch_runner(session, checkpoint, committers)
        self._closers.append(batches.close)
        observer = Observer(self.plan, self._root, batches, committers, self._meter)
        self._meter.starting("starting workers and bringing the state to the last commit")
        query = self._start_warm(session, checkpoint, batches)
        self._tell_recovery(checkpoint, batches, observer)
        self._meter.enter("running")
        self._is_up.set()
        self._watch(query, batches, observer)
        for committer in committers.values():
            committer.close(self.options.drain_s)
        observer.look()

    def _answer_queries(self) -> None:
        if self.options.status_address is not None:
            server = StatusServer(
                self, *self.options.status_address, token=self.options.status_token
            )
            self._closers.append(server.close)
            server.start()

    def _tell_recovery(
        self, checkpoint: Checkpoint, batches: BatchRunner, observer: Observer
    ) -> None:
        sources, sinks = observer.look()
        self._meter.recovered(
            Recovery(
                checkpoint.last.batch if checkpoint.last else -1,
                time.time() - self._began_at,
                batches.catch_up_ms / 1e3,
                batches.entries_applied,
                describe(checkpoint.last, sources, sinks),
            )
        )
        if self._is_temporary:
            return
        log(f"checkpoint {self._root}: {describe(checkpoint.last, sources, sinks)}")
        log(f"ready after {time.time() - self._began_at:.1f} s, of which the state took {batches.catch_up_ms / 1e3:.2f} s "
            f"({batches.entries_applied:,} entries into this host's view)")  # fmt: skip

    def _open_session(self) -> SparkSession:
        options = self.options
        session = open_session(
            self.plan.application,
            options.master,
            self._scratch,
            options.log_level,
            options.spark_conf,
        )
        self._closers.append(lambda: close_session(session))
        return session

    def _check_spools(self, checkpoint: Checkpoint) -> None:
        """Raise CheckpointError unless the spools hold what the last commit has read."""
        committed = checkpoint.last.offsets if checkpoint.last else {}
        names = {source.config.name for source in self.plan.sources}
        present = {name: offset for name, offset in committed.items() if name in names}
        check_spools(self._root / "spool", checkpoint.id, present)

    def _start_feeders(self, checkpoint: Checkpoint) -> Feeders:
        feeders = Feeders()
        self._closers.append(feeders.stop)
        self.addresses = feeders.start(
            [source.config for source in self.plan.sources],
            self._root / "spool",
            is_durable=not self._is_temporary,
            backlog_bytes_max=self.options.backlog_bytes_max,
            sys_path=self.options.module_paths,
            log=log,
            ack_ports=dict(self.options.ack_ports),
            serve_on=self._range_host(),
            checkpoint=checkpoint.id,
        )
        return feeders

    def _range_host(self) -> str | None:
        """Return where the range server listens, which gives executors on other hosts their input;
        None where there are none.
        """
        if self._is_local:
            return None
        # every host of the cluster has to reach it
        return "127.0.0.1" if is_loopback(self._master) else "0.0.0.0"

    def _spools(self, session: SparkSession) -> tuple[SpoolReader | RemoteSpool, ...]:
        names = [source.config.name for source in self.plan.sources]
        if self._feeders.range_address is None:
            return tuple(SpoolReader(folder_of(self._root / "spool", name)) for name in names)
        host, port = self._feeders.range_address
        if host == "0.0.0.0":
            host = session.sparkContext.getConf().get("spark.driver.host") or host
        return tuple(RemoteSpool((host, port), self._feeders.range_secret, name) for name in names)

    def _open_sinks(self, checkpoint: Checkpoint) -> dict[str, SinkCommitter]:
        committers: dict[str, SinkCommitter] = {}
        last = checkpoint.last
        history = history_of(checkpoint)
        for sink in self.plan.sinks:
            staging = self._root / "outbox" / sink.name
            make_private(staging, is_durable=not self._is_temporary)
            committer = committers[sink.name] = sink.config.committer(
                sink.name, staging, not self._is_temporary
            )
            self._closers.append(partial(committer.close, self.options.drain_s))
            committer.recover(history, last.sinks.get(sink.name, []) if last else [])
        return committers

    def _batch_runner(
        self, session: SparkSession, checkpoint: Checkpoint, committers: dict[str, SinkCommitter]
    ) -> BatchRunner:
        deployment = Deployment.of(
            self.plan,
            self._modules() if self._is_local else (),
            self._root,
            self._spools(session),
            str(checkpoint.view_root) if self._is_local else "",
            checkpoint.id,
            not self._is_temporary,
        )
        return BatchRunner(
            context=session.sparkContext,
            plan=self.plan,
            deployment=deployment,
            checkpoint=checkpoint,
            committers=committers,
            meter=self._meter,
            pacer=Pacer(self.options.batch_time_s),
            scratch=self._scratch,
            place=Place(self._is_local, self.options.tasks, self.options.is_sticky),
            housekeeping=Housekeeping(
                checkpoint, self.plan.key_groups, self.options.retain_commits
            ),
            on_committed=self._tell_planner,
            steps=step_table(checkpoint.last, self.plan.state_steps, self._judgement.dropped),
        )

    def _modules(self) -> tuple[str, ...]:
        own = self.options.module_paths
        return (*own, *(path for path in sys.path if path and path not in own))

    def _start_warm(
        self, session: SparkSession, checkpoint: Checkpoint, batches: BatchRunner
    ) -> StreamingQuery:
        """Start the query while the workers warm up: both wait for processes to start more than
        they compute.
        """
        warming = threading.Thread(
            target=self._warm_up, args=(batches,), name="wallaroo-warm-up", daemon=True
        )
        self._batches = batches
        self._hold(True)
        warming.start()
        query = self._start_query(session, checkpoint, batches)
        warming.join()
        while query.isActive and not batches.is_started.wait(WATCH_S) and batches.failure is None:
            self._feeders.poll()
        if batches.failure is not None:
            raise failure_of(query, batches.failure)
        self._hold(False)
        return query

    def _warm_up(self, batches: BatchRunner) -> None:
        try:
            batches.cluster.start(lambda: not self._is_stopping.is_set())
            if not self._is_stopping.is_set():
                batches.warm_up()
        except Exception as error:  # noqa: BLE001  # told by the thread that waits
            batches.failure = error

    def _start_query(
        self, session: SparkSession, checkpoint: Checkpoint, batches: BatchRunner
    ) -> StreamingQuery:
        start = checkpoint.last.offsets if checkpoint.last else {}
        initial = {
            source.config.name: start.get(source.config.name, [0, 0])
            for source in self.plan.sources
        }
        return start_query(
            session, self.plan.application, self._root / "spool", initial, self._scratch, batches
        )

    def _hold(self, is_held: bool) -> None:
        """Let the planner take nothing, or something again."""
        self._is_held = is_held
        self._tell_planner()

    def _tell_planner(self) -> None:
        """Say how much the next batch may take; the watch and the batches both do."""
        with self._control_lock:
            control = Control(
                self._batches.pacer.events_max, self._is_held or self._is_stopping.is_set()
            )
            if control != self._control or not (self._scratch / "control").exists():
                write_control(self._scratch / "control", control)
                self._control = control

    def _watch(self, query: StreamingQuery, batches: BatchRunner, observer: Observer) -> None:
        while True:
            if batches.failure is not None or not query.isActive:
                raise failure_of(query, batches.failure)
            self._feeders.poll()
            batches.cluster.poll()
            sources, _ = observer.look()
            self._hold(observer.is_full(self.options.backlog_bytes_max))
            is_done = all(source.is_ended and source.backlog_events == 0 for source in sources)
            if is_done:
                self._end_state = "input ended"
            if is_done or self._is_stopping.is_set():
                break
            self._is_stopping.wait(WATCH_S)
        self._meter.enter("stopping")
        self._is_stopping.set()
        self._feeders.stop_feeding()  # batches under way may still read ranges
        self._hold(True)
        self._stop_at_boundary(query, batches)

    def _stop_at_boundary(self, query: StreamingQuery, batches: BatchRunner) -> None:
        idle = 0
        while (
            idle < IDLE_TRIGGERS
            and query.isActive
            and batches.failure is None
            and not batches.cluster.is_empty
        ):
            self._feeders.poll()  # a range server that is killed comes back
            batches.cluster.poll()  # the last worker may go now
            idle = idle + 1 if query.status["message"] == "Waiting for data to arrive" else 0
            time.sleep(0.02)
        if batches.failure is not None:
            raise failure_of(query, batches.failure)
        query.stop()

    def _close(self) -> None:
        self._is_stopping.set()
        for close in reversed(self._closers):
            try:
                close()
            except Exception as error:  # noqa: BLE001  # closing goes on: the first error is what the user is told
                self.exception = self.exception or InternalError(
                    f"while closing: {type(error).__name__}: {error}"
                )
        self._own_scratch.remove()
