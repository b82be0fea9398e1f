"""One run of an application, and the handle to it.

The run's thread starts everything, watches it and ends it at the last batch boundary; the handle
only sends requests.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from weakref import WeakSet

from wallaroo.api.application import Application
from wallaroo.checkpoints.inspection.compatibility import require_compatible
from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.disk_errors import unexpected_error
from wallaroo.durable.ownership import UNOWNED
from wallaroo.durable.scratch import Scratch, make_scratch, sweep_dead
from wallaroo.errors import InUseError, TakenOverError, WallarooError
from wallaroo.ingress.process import Feeders
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.progress import Recovery
from wallaroo.monitoring.metrics.status import RunState, RunStatus
from wallaroo.monitoring.status_api.server import StatusServer
from wallaroo.options import RunHandle, RunOptions
from wallaroo.runtime.batch.batches import WarmUp
from wallaroo.runtime.host import Host, RunFolders
from wallaroo.runtime.lifecycle.phases import Phases, StoppedError
from wallaroo.runtime.lifecycle.shutdown_stack import ShutdownStack, stop_at_exit
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.runtime.lifecycle.start import (
    OpenedCheckpoint,
    RunComponents,
    open_components,
    open_host,
    open_sources,
    open_state,
    request_workers,
    standby_deployment,
)
from wallaroo.runtime.lifecycle.watch import Watch
from wallaroo.runtime.recovery import describe
from wallaroo.runtime.standby.following import WARM_S, YIELD_S, Follower, Repeated
from wallaroo.runtime.standby.waiting import Standby, Turn
from wallaroo.state.log.lease import LeaseHolder
from wallaroo.state.store.stored_checkpoint import checkpoint_folder

_log = logging.getLogger("wallaroo.run")


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals between the run's thread and its handle."""

    stop: threading.Event = field(default_factory=threading.Event)
    up: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    waiting: WeakSet[threading.Thread] = field(default_factory=WeakSet)  # all that called `wait`


class Run(RunHandle):
    """The handle; see ``wallaroo.options.RunHandle``."""

    def __init__(
        self,
        application: Application,
        options: RunOptions,
        host: Host,
        scratch: Scratch | None = None,
        feeders: Feeders | None = None,
    ):
        self.application = application
        self.options = options
        self.plan: Plan = replace(application.plan, key_groups=options.key_groups)
        self.addresses: dict[str, tuple[str, int]] = {}
        self.exception: WallarooError | None = None
        sweep_dead()  # scratch folders of runs that were killed
        self._scratch = scratch or make_scratch()
        url = options.store_url
        folder = checkpoint_folder(url) if url else options.checkpoint
        root = Path(folder or self._scratch.path / "checkpoint").absolute()
        meter = RunMeter(
            self.plan.application,
            time.time(),
            checkpoint="" if options.checkpoint is None else url or str(root),
            is_durable=options.checkpoint is not None,
            durability=options.level if options.checkpoint is not None else "",
            latency_target_ms=options.latency_s * 1e3,
        )
        site = RunFolders(root, self._scratch.path)
        self._spec = RunSpec(self.plan, options, host, site, meter, feeders or Feeders())
        self._owner = UNOWNED
        self._lease: LeaseHolder | None = None
        self._server: StatusServer | None = None
        self._signals = Signals()
        self._thread = threading.Thread(target=self._live, name="wallaroo-run", daemon=True)

    # -- the handle

    def begin(self) -> None:
        """Start in the background; return at once."""
        stop_at_exit(self)
        self._thread.start()

    def start(self) -> None:
        """Start; return when input is processed, or raise the error that prevented it."""
        self.begin()
        self.wait_started()

    def wait_started(self, timeout: float | None = None) -> bool:
        if not self._signals.up.wait(timeout):
            return False
        if self.exception is not None:
            self._signals.ended.wait()
            raise self.exception
        return True

    def status(self) -> RunStatus:
        return replace(self._spec.meter.status(time.time()), dashboard=self._dashboard)

    @property
    def _dashboard(self) -> str:
        return self._server.dashboard if self._server is not None else ""

    @property
    def meter(self) -> RunMeter:
        """Return the run's meter, which the status server reads."""
        return self._spec.meter

    def reset_latency(self) -> None:
        """Reset the latency figures, as after a warm-up."""
        self._spec.meter.reset_latency()

    @property
    def root(self) -> Path:
        """Return the folder of state, spool and outbox: a checkpoint, or one removed at the end."""
        return self._spec.site.root

    def stop(self) -> None:
        self._signals.stop.set()
        if not self._signals.up.is_set():
            # in a thread, so that the start does not wait for it
            threading.Thread(target=self._spec.host.interrupt, daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        self._signals.waiting.add(threading.current_thread())
        return self._signals.ended.wait(timeout)

    def stop_at_exit(self, until: float) -> None:
        is_stopping = self._signals.stop.is_set()
        waiting = [each for each in self._signals.waiting if each.is_alive() and not each.daemon]
        if threading.main_thread() in waiting and not is_stopping:
            waiting.remove(threading.main_thread())  # it has waited for a while, and ends now
        if waiting:
            return
        if not is_stopping:
            _log.warning(
                "the program ends while run '%s' is running, so the run is stopped; call result() "
                "on what wallaroo.run() returns to wait for its end",
                self.plan.application,
            )
        self.stop()
        self._signals.ended.wait(max(0.0, until - time.monotonic()))

    # -- the run's thread

    def _live(self) -> None:
        stack = ShutdownStack()
        end = RunState.STOPPED
        try:
            end = self._run(stack)
        except StoppedError:
            pass
        except WallarooError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # the run's error boundary
            self._fail(unexpected_error("the run ended", error))
        self._end(stack, end)

    def _run(self, stack: ShutdownStack) -> RunState:
        stop = self._signals.stop
        phases = Phases(self._spec.meter, stop)
        stack.add(self._spec.host.discard)
        opened = self._opened(phases, stack)
        if opened is None:
            return RunState.STOPPED
        spec = self._spec
        self._owner = opened.checkpoint.owner
        self._lease = opened.lease
        self.plan = opened.plan
        self._answer_queries(stack, opened)
        beginnings = open_sources(opened, phases, stop.is_set)
        self.addresses = opened.sources.addresses
        components = open_components(spec, opened, beginnings, phases, stack)
        components.intake.publish()
        warm_up = spec.host.start(components.batches, phases.enter)
        phases.note("")
        self._report_recovery(components, warm_up)
        components.accounts.begin()
        spec.meter.enter(RunState.RUNNING)
        components.intake.hold(False)
        self._signals.up.set()
        return Watch(spec, components, phases, stop).run()

    def _opened(self, phases: Phases, stack: ShutdownStack) -> OpenedCheckpoint | None:
        """Return the open checkpoint; None if this run was a standby that need not lead."""
        after_s = self.options.standby_after_s
        if after_s is None:
            return open_state(self._spec, phases, stack)
        spec = self._spec
        root = spec.site.root
        require_compatible(root, self.plan, self.options.allow_incompatible)
        self._answer_queries(stack)
        open_host(spec, phases, stack)
        has_copy = spec.host.is_local and bool(self.plan.state_steps)
        view = spec.site.scratch / "view" if has_copy else None
        warm = partial(spec.host.keep_warm, standby_deployment(spec))
        every_s = WARM_S if spec.host.is_local else YIELD_S
        follower = Follower(root, view, self.plan.key_groups, Repeated(warm, every_s))
        stack.add(follower.close)
        follower.start()
        standby = Standby(root, after_s, spec.meter, follower)
        spec.meter.enter(RunState.STANDBY)
        while (turn := standby.wait(self._signals.stop)) is not None:
            leading = self._leading(turn)
            try:
                opened = open_state(leading, phases, stack, turn.after)
            except InUseError as reason:
                standby.refused(reason)
                continue
            self._spec = replace(leading, view_root=follower.close())
            request_workers(spec.host, opened)  # they start while sources and sinks are opened
            spec.meter.enter(RunState.STARTING)
            spec.meter.identity.standby = None
            return opened
        return None

    def _leading(self, turn: Turn) -> RunSpec:
        """Return the specification of this run as the leader."""
        options = replace(self.options, standby_after_s=None, is_taking_over=turn.is_taking_over)
        return replace(self._spec, options=options, is_host_open=True)

    def _answer_queries(self, stack: ShutdownStack, opened: OpenedCheckpoint | None = None) -> None:
        """Answer as the leader if a checkpoint is open, else as a standby."""
        options = self.options
        if self._server is not None:
            self._server.lead()
        elif options.status_address is not None:
            server = StatusServer(
                self, *options.status_address, options.status_token, options.status_tls
            )
            stack.add(server.close)
            if opened is None:
                server.start(is_leading=False)
            else:
                opened.once_free(server.start)
            self._server = server
            _log.info("dashboard %s (`wallaroo status --link`: with its token)", server.dashboard)

    def _report_recovery(self, components: RunComponents, warm_up: WarmUp) -> None:
        last = components.checkpoint.last
        observed = components.observer.look()
        recovery = Recovery(
            batch=last.batch if last else -1,
            ready_s=self.status().elapsed_s,
            state_s=warm_up.catch_up_ms / 1e3,
            entries=warm_up.entries_applied,
            text=describe(last, observed.sources, observed.sinks),
        )
        self._spec.meter.recovered(recovery)
        if self.options.checkpoint is None:
            return
        url = self.options.store_url
        _log.info(
            "checkpoint %s (durability %s): %s",
            f"{url} (cache {self.root})" if url else self.root,
            self.options.level,
            recovery.text,
        )
        _log.info(
            "ready after %.1f s, of which the state took %.2f s (%s entries into this host's view)",
            recovery.ready_s,
            recovery.state_s,
            f"{recovery.entries:,}",
        )

    def _fail(self, error: WallarooError) -> None:
        """Keep the error that ended the run, unless it follows from a stop during the start.

        A run that was taken over fails in many ways, as its ports and files belong to another one.
        """
        try:
            if isinstance(error, TakenOverError):
                raise error
            self._owner.require()
        except TakenOverError as reason:
            self.exception = reason
            return
        except WallarooError:
            pass  # this is a consequence of the error, or its cause
        if self._signals.stop.is_set() and not self._signals.up.is_set():
            return
        self.exception = error

    def _end(self, stack: ShutdownStack, end: RunState) -> None:
        is_started = self._signals.up.is_set()
        self._signals.stop.set()
        try:
            error = stack.close()
            if self.exception is None and is_started:
                self.exception = error
            if self._lease is not None and self.exception is None:
                self._lease.give_back()
            self._scratch.remove()
            self._spec.meter.starting("")
            self._spec.meter.enter(RunState.FAILED if self.exception else end)
        except WallarooError as failure:
            self.exception = self.exception or failure
        finally:  # a wait for the run returns even if closing fails
            if self.exception is not None and is_started and not self._signals.waiting:
                _log.error("run '%s' has failed: %s", self.plan.application, self.exception)
            self._signals.up.set()
            self._signals.ended.set()
