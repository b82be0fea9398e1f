"""A status to show and a handle that runs nothing: the host boundary of ``wallaroo run``."""

from __future__ import annotations

import threading
from dataclasses import replace

from wallaroo.errors import WallarooError
from wallaroo.monitoring.metrics.status import (
    PipelineLatency,
    RunState,
    RunStatus,
    SinkLine,
    SourceStatus,
)
from wallaroo.options import RunHandle

STATUS = RunStatus(
    application="Market Spread",
    state=RunState.RUNNING,
    started_at=1_700_000_000.0,
    elapsed_s=63.2,
    batches=61,
    last_batch=60,
    batch_ms=912.4,
    batch_ms_median=874.0,
    events_in=15_412_000,
    events_done=15_120_000,
    outputs=72_310,
    events_in_per_s=251_400.0,
    events_done_per_s=249_870.0,
    outputs_per_s=1_204.0,
    tasks=2,
    sources=(
        SourceStatus(
            "Orders",
            "tcp 127.0.0.1:7010",
            7_706_000,
            7_560_000,
            146_000,
            6_716_000,
            1,
            False,
            False,
        ),
        SourceStatus(
            "NBBO", "tcp 127.0.0.1:7011", 7_706_000, 7_560_000, 146_000, 8_322_000, 0, True, False
        ),
    ),
    sinks=(
        SinkLine(
            "tcp-7002", "tcp 127.0.0.1:7002", 72_310, "127.0.0.1:7002 (connection refused)", 4_096
        ),
    ),
    latency=(
        PipelineLatency("Orders", 72_310, 512.3, 901.0, 1_120.0, 1_404.0, 12_480.0),
        PipelineLatency("Market Data", 40, 4.25, 8.0, 9.5, 9.5, 9.51),
    ),
    waiting_for="tcp-7002: 127.0.0.1:7002 (connection refused)",
    checkpoint="/var/lib/spread",
    is_durable=True,
)


class FakeHandle(RunHandle):
    """Ends at `stop`, or after ``ends_after`` waits, perhaps with an error; ``wait`` really
    waits.  It starts until it was waited for ``starts_after`` times.
    """

    def __init__(
        self,
        *,
        ends_after: int | None = None,
        fails_with: WallarooError | None = None,
        starts_after: int = 0,
    ) -> None:
        self._ends_after = ends_after
        self._fails_with = fails_with
        self._starts_after = starts_after
        self.waits = 0
        self.stops = 0
        self.is_deaf = False  # is asked to stop and goes on
        self.has_been_seen = threading.Event()  # its status was asked for
        self._ended = threading.Event()

    @property  # type: ignore[override]  # it changes when the run has ended
    def exception(self) -> WallarooError | None:
        return self._fails_with if self._ended.is_set() else None

    @property  # type: ignore[override]
    def addresses(self) -> dict[str, tuple[str, int]]:
        return {}

    def status(self) -> RunStatus:
        if self.waits > 1:
            self.has_been_seen.set()
        if self._ended.is_set():
            return replace(STATUS, state=RunState.FAILED if self._fails_with else RunState.STOPPED)
        if self.stops:
            return replace(STATUS, state=RunState.STOPPING)
        if self.waits <= self._starts_after:
            return replace(STATUS, state=RunState.STARTING, doing="starting Spark")
        return STATUS

    def begin(self) -> None:
        """It has begun."""

    def wait_started(self, timeout: float | None = None) -> bool:
        return True

    def stop(self) -> None:
        self.stops += 1
        if not self.is_deaf:
            self._ended.set()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        if self._ends_after is not None and self.waits > self._ends_after:
            self._ended.set()
        return self._ended.wait(timeout)
