"""One run of an application, and the handle to it.

Where it runs: driver.  A thread of the run's own starts everything, watches it and ends it at the
last batch boundary; the handle only sends requests.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from wallaroo.api.application import Application
from wallaroo.durable.disk_errors import disk_error_of
from wallaroo.errors import InternalError, WallarooError
from wallaroo.metrics.meter import RunMeter
from wallaroo.metrics.progress import Recovery
from wallaroo.metrics.status import RunStatus
from wallaroo.options import RunHandle, RunOptions
from wallaroo.plan.model import Plan
from wallaroo.runtime.batches import WarmUp
from wallaroo.runtime.host import Host, Site
from wallaroo.runtime.lifecycle.closing import Closers
from wallaroo.runtime.lifecycle.phases import Phases, StoppedError
from wallaroo.runtime.lifecycle.start import Order, Parts, open_parts, open_sources, open_state
from wallaroo.runtime.lifecycle.watch import Ending, Watch
from wallaroo.runtime.recovery import describe
from wallaroo.scratch import Scratch, make_scratch, sweep_dead
from wallaroo.status_api.server import StatusServer

_log = logging.getLogger("wallaroo.run")


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals between the run's thread and its handle."""

    stop: threading.Event = field(default_factory=threading.Event)
    up: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


class Run(RunHandle):
    """The handle; see ``wallaroo.options.RunHandle``."""

    def __init__(
        self,
        application: Application,
        options: RunOptions,
        host: Host,
        scratch: Scratch | None = None,
    ):
        self.application = application
        self.options = options
        self.plan: Plan = replace(application.plan, key_groups=options.key_groups)
        self.addresses: dict[str, tuple[str, int]] = {}
        self.exception: WallarooError | None = None
        sweep_dead()  # scratch folders of runs that were killed
        self._scratch = scratch or make_scratch()
        root = (options.checkpoint or self._scratch.path / "checkpoint").absolute()
        meter = RunMeter(
            self.plan.application,
            time.time(),
            checkpoint="" if options.checkpoint is None else str(root),
            is_durable=options.checkpoint is not None,
        )
        site = Site(root, self._scratch.path)
        self._order = Order(self.plan, options, host, site, meter)
        self._signals = Signals()
        self._thread = threading.Thread(target=self._live, name="wallaroo-run", daemon=True)

    # -- the handle

    def begin(self) -> None:
        """Begin to start; return at once."""
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
        return self._order.meter.status(time.time())

    @property
    def meter(self) -> RunMeter:
        """Return the run's meter, which the status server reads."""
        return self._order.meter

    def reset_latency(self) -> None:
        """Reset the latency figures, as after a warm-up."""
        self._order.meter.reset_latency()

    @property
    def root(self) -> Path:
        """Return the folder of state, spool and outbox.

        It is the checkpoint, or a temporary folder that is removed at the end of the run.
        """
        return self._order.site.root

    def stop(self) -> None:
        self._signals.stop.set()
        if not self._signals.up.is_set():
            # in a thread, so that the caller does not wait with the start
            threading.Thread(target=self._order.host.interrupt, daemon=True).start()

    def wait(self, timeout: float | None = None) -> bool:
        return self._signals.ended.wait(timeout)

    # -- the run's thread

    def _live(self) -> None:
        closers = Closers()
        ending = Ending.STOPPED
        try:
            ending = self._run(closers)
        except StoppedError:
            pass
        except WallarooError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  # the run's error boundary
            unexpected = disk_error_of(error) or InternalError(
                "the run ended in a way that this program does not expect: "
                f"{type(error).__name__}: {error}"
            )
            unexpected.__cause__ = error
            self._fail(unexpected)
        self._end(closers, ending)

    def _run(self, closers: Closers) -> Ending:
        stop = self._signals.stop
        order = self._order
        phases = Phases(order.meter, stop)
        closers.add(order.host.discard)
        found = open_state(order, phases, closers)
        self.plan = found.plan
        self._answer_queries(closers)
        beginnings = open_sources(order, found, phases, stop.is_set)
        self.addresses = found.sources.addresses
        parts = open_parts(order, found, beginnings, phases, closers)
        parts.intake.publish()
        warm_up = order.host.start(parts.batches, phases.enter)
        phases.note("")
        self._report_recovery(parts, warm_up)
        parts.accounts.begin()
        order.meter.enter("running")
        parts.intake.hold(False)
        self._signals.up.set()
        return Watch(order, parts, phases, stop).run()

    def _answer_queries(self, closers: Closers) -> None:
        options = self.options
        if options.status_address is not None:
            server = StatusServer(
                self, *options.status_address, options.status_token, options.status_tls
            )
            closers.add(server.close)
            server.start()

    def _report_recovery(self, parts: Parts, warm_up: WarmUp) -> None:
        last = parts.checkpoint.last
        observed = parts.observer.look()
        recovery = Recovery(
            batch=last.batch if last else -1,
            ready_s=self.status().elapsed_s,
            state_s=warm_up.catch_up_ms / 1e3,
            entries=warm_up.entries_applied,
            text=describe(last, observed.sources, observed.sinks),
        )
        self._order.meter.recovered(recovery)
        if self.options.checkpoint is None:
            return
        _log.info("checkpoint %s: %s", self.root, recovery.text)
        _log.info(
            "ready after %.1f s, of which the state took %.2f s (%s entries into this host's view)",
            recovery.ready_s,
            recovery.state_s,
            f"{recovery.entries:,}",
        )

    def _fail(self, error: WallarooError) -> None:
        """Keep the error that ended the run, unless it follows from a stop during the start."""
        if self._signals.stop.is_set() and not self._signals.up.is_set():
            return
        self.exception = error

    def _end(self, closers: Closers, ending: Ending) -> None:
        is_started = self._signals.up.is_set()
        self._signals.stop.set()
        error = closers.close()
        if self.exception is None and is_started:
            self.exception = error
        self._scratch.remove()
        self._order.meter.starting("")
        self._order.meter.enter("failed" if self.exception else ending.value)
        self._signals.up.set()
        self._signals.ended.set()
