"""The watch over a run, and its stop at a batch boundary.

A run ends on request, or when all sources have ended, their events are committed and all output is
sent. A stop always completes: the current batch gets ``stop_s``, then it is cancelled without a
commit, and the next run begins with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.progress import Usage
from wallaroo.monitoring.metrics.status import ProcessStatus, RunState
from wallaroo.processes.roles import family, name_of
from wallaroo.runtime.batch.batches import UnderWay
from wallaroo.runtime.lifecycle.observer import Observation
from wallaroo.runtime.lifecycle.phases import Phases
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.runtime.lifecycle.start import COMMIT_S, RunComponents

SAMPLE_S = 10.0  # between two samples, each of which reads the table of all processes


class ProcessUsage:
    """Samples of the driver and of all processes below it."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._at = float("-inf")
        # by pid and start, as the system reuses pids: processor seconds at the last sample
        self._seen: dict[tuple[int, float], float] = {}
        self._cpu_s: dict[str, float] = {}

    @property
    def cpu_s(self) -> Mapping[str, float]:
        """Return the processor seconds by process name, including ended processes."""
        return dict(self._cpu_s)

    def sample(self) -> tuple[ProcessStatus, ...] | None:
        """Return all processes, the driver first, then by size; None if it is too early."""
        now = self._now()
        if now - self._at < SAMPLE_S:
            return None
        seconds = now - self._at  # infinite at the first sample
        self._at = now
        processes: list[ProcessStatus] = []
        seen: dict[tuple[int, float], float] = {}
        for process in family(os.getpid()):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                processes.append(self._status(process, seconds, seen))
        self._seen = seen
        return tuple(sorted(processes, key=lambda one: (one.name != "driver", -one.resident_bytes)))

    def _status(
        self, process: psutil.Process, seconds: float, seen: dict[tuple[int, float], float]
    ) -> ProcessStatus:
        with process.oneshot():
            name = "driver" if process.pid == os.getpid() else name_of(process.cmdline())
            times = process.cpu_times()
            resident = process.memory_info().rss
            identity = process.pid, process.create_time()
        used_s = times.user + times.system
        newly_s = max(0.0, used_s - self._seen.get(identity, 0.0))
        seen[identity] = used_s
        self._cpu_s[name] = self._cpu_s.get(name, 0.0) + newly_s
        return ProcessStatus(name, process.pid, newly_s / seconds, resident)


WATCH_S = 0.1  # between two polls of sources, sinks and the host
WATCH_IDLE_S = 1.0  # if there was no batch for a while and nothing blocks the next one
IDLE_AFTER_S = 2.0
_log = logging.getLogger("wallaroo.run")


@dataclass(slots=True)
class Overdue:
    """The last batch reported as overdue, and the report's words."""

    batch: int = -1
    words: str = ""


@dataclass(slots=True)
class Busy:
    """Time of the last work."""

    batch: int = -1
    at: float = field(default_factory=time.monotonic)  # a run that has just started is not idle

    def pause_s(self, is_busy: bool, batch: int, now: float) -> float:
        """Record whether there is work, and the last batch; return the next pause.

        >>> busy = Busy()
        >>> [busy.pause_s(False, batch, at) for batch, at in ((7, 10.0), (7, 11.0), (7, 13.0))]
        [0.1, 0.1, 1.0]
        >>> busy.pause_s(True, 7, 14.0), busy.pause_s(False, 7, 15.0)
        (0.1, 0.1)
        """
        if is_busy or batch != self.batch:
            self.batch = batch
            self.at = now
        return WATCH_IDLE_S if now - self.at > IDLE_AFTER_S else WATCH_S


class Watch:
    """The watch over a run until its end."""

    def __init__(
        self, spec: RunSpec, components: RunComponents, phases: Phases, stop: threading.Event
    ):
        self._spec = spec
        self._components = components
        self._phases = phases
        self._stop = stop
        self._overdue = Overdue()
        self._busy = Busy()
        self._usage = ProcessUsage()

    def run(self) -> RunState:
        """Watch the run until its end; return its last state, or raise the error that ended it."""
        end = self._watch()
        self._spec.meter.enter(RunState.STOPPING)
        self._stop.set()
        self._phases.note("finishing the batch under way")
        self._components.intake.hold(True)
        self._components.sources.stop_feeding()
        if not self._spec.host.finish(self._spec.options.stop_s):
            self._components.batches.abandon(COMMIT_S)
            _log.warning(
                "the batch under way did not end within %g s, or lost its tasks, and was "
                "cancelled; it is not committed, and the next run begins with it",
                self._spec.options.stop_s,
            )
        self._phases.note("sending what is committed")
        self._components.sinks.close(self._spec.options.drain_s)
        self._components.observer.look()
        self._phases.note("")
        return end

    def _watch(self) -> RunState:
        while not self._stop.is_set():
            if self._look().is_input_done and self._components.batches.is_finished:
                # the committed output is complete, but still has to be sent
                self._phases.note("sending the last output")
                if self._components.sinks.has_sent_everything and not self._stop.is_set():
                    return RunState.FINISHED
            self._stop.wait(self._pause_s())
        return RunState.STOPPED

    def _pause_s(self) -> float:
        """Return the seconds until the next poll: in an idle run, polls are most of the work."""
        batches = self._components.batches
        last = batches.last
        is_held = self._components.intake.is_held
        is_busy = is_held or batches.under_way is not None
        return self._busy.pause_s(is_busy, last.batch if last else -1, time.monotonic())

    def _look(self) -> Observation:
        self._require_scratch()
        try:
            return self._observe()
        except Exception:
            self._require_scratch()  # its removal explains most subsequent errors
            raise

    def _require_scratch(self) -> None:
        if not self._spec.site.scratch.is_dir():
            raise PeerError(
                f"the run's folder for temporary files, {self._spec.site.scratch}, was removed "
                "while it ran. Exclude folders named wallaroo-* from what cleans up there, or set "
                "TMPDIR to a folder that is not cleaned; then run again: what was committed stays."
            )

    def _observe(self) -> Observation:
        self._components.checkpoint.require()  # a run without input ends, too
        host = self._spec.host
        host.poll()
        self._components.sources.poll()
        self._components.sinks.poll()
        elsewhere = self._components.checkpoint.elsewhere
        waiting_for = (
            host.waiting_for,
            self._components.sources.waiting_for,
            self._overdue_words(),
        )
        self._spec.meter.set_workers(host.workers())  # they may leave while no batch ends
        self._spec.meter.progress.workers_killed = host.workers_killed
        processes = self._usage.sample()
        if processes is not None:
            self._spec.meter.progress.usage = Usage(processes, self._usage.cpu_s)
        observed = self._components.observer.look(
            "; ".join(filter(None, waiting_for)),
            elsewhere.waiting_for if elsewhere is not None else "",
        )
        if self._components.taken_over is not None:
            self._components.taken_over.free_sinks(observed.sinks, time.time())
        is_full = self._components.sinks.is_full(self._spec.options.backlog_bytes_max)
        self._components.intake.hold(is_full)
        return observed

    def _overdue_words(self) -> str:
        under_way = self._components.batches.under_way
        if under_way is None:
            return ""
        seconds = time.monotonic() - under_way.began
        if seconds < self._spec.options.batch_deadline_s:
            return ""
        if under_way.batch != self._overdue.batch:
            self._report(under_way, seconds)
        return f"{self._overdue.words} (for {seconds:.0f} s now)"

    def _report(self, under_way: UnderWay, seconds: float) -> None:
        stuck = self._spec.host.stuck(under_way.batch)
        words = "; ".join((f"batch {under_way.batch} to end", *stuck))
        self._overdue = Overdue(under_way.batch, words)
        _log.warning(
            "batch %d has taken %.0f s so far: %s",
            under_way.batch,
            seconds,
            "; ".join(stuck) or f"none of its {under_way.tasks} tasks says why",
        )
