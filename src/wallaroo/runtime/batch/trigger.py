"""The trigger of batches: start and end of the next one.

A batch begins as soon as there is work and the cadence of the latency target allows it (`Cadence`).
Batches adapt to the load: each takes the input that arrived during the previous one, within the
pacer's bound. If all sources report new input, the driver sleeps until then. Otherwise it polls:
often shortly after input, and less often the longer there is none.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.instrumentation.tuning import HUNG_S
from wallaroo.runtime.batch.admission import Admission, Ends, have_ended, plan_ends
from wallaroo.runtime.batch.batches import Batches
from wallaroo.sources.log import SourceLog
from wallaroo.spool.waking import PauseNote

WINDOW = 16  # batches
SLOW = 1.5  # times the median: batches up to this duration still meet the target
FULL = 0.5  # share of a batch's bound; batches end at chunk boundaries, so they seldom reach it


class Cadence:
    """The earliest beginning of the next batch.

    Pure: the clock comes in as an argument, in monotonic seconds.

    An event that arrives right after a batch began waits for the next one, plus that batch's
    duration. So the interval between two batch starts is at least the target minus one and a half
    times the duration of a batch (the median of the newest ones, from start until the host requests
    another): the target holds even for batches that take half as long again, and the more of a
    batch is spent on events, the less they wait. An event that arrives later starts a batch at
    once: an idle run sleeps, and a lone event does not wait. A batch filled to a good part of its
    bound is also followed at once, as more input is waiting. So is every batch if one takes two
    thirds of the target, or if there is no target (0).
    """

    def __init__(self, target_s: float = 0.0):
        """Start without a wait; ``target_s``: 0 if there is no target."""
        self._target_s = target_s
        self._took_s: deque[float] = deque(maxlen=WINDOW)
        self._began: float | None = None  # the newest batch
        self._is_under_way = False
        self._was_full = False

    def begins(self, now: float, events: int, events_max: int) -> None:
        """Record the start of a batch of ``events`` events, with bound ``events_max``."""
        self._began = now
        self._is_under_way = True
        self._was_full = events >= FULL * events_max

    def ends(self, now: float) -> None:
        """Record the end of the current batch, if any."""
        if self._is_under_way and self._began is not None:
            self._took_s.append(now - self._began)
        self._is_under_way = False

    def pause_s(self, now: float) -> float:
        """Return the seconds until the next batch may begin; 0 if it may begin now.

        >>> cadence = Cadence(0.050)
        >>> cadence.begins(10.000, events=3, events_max=1_000)
        >>> cadence.ends(10.008)
        >>> round(cadence.pause_s(10.008), 3), cadence.pause_s(10.060)
        (0.03, 0.0)
        """
        if self._began is None or self._was_full or not self._took_s:
            return 0.0
        interval_s = self._target_s - SLOW * statistics.median(self._took_s)
        return max(0.0, self._began + interval_s - now)


SLOWER = 0.05  # the next pause as a share of the time without input
LOOK_WOKEN_S = 2.0  # between polls of sources that wake the driver, in case a wake-up is lost
READ_BYTES = 64
PAUSE_S = 0.25  # between two checks whether all input has ended, while the cadence holds back
CLOSE_S = 1.0  # for `next` to return


@dataclass(frozen=True, slots=True)
class LookTimes:
    """Seconds between polls of sources that do not wake the driver."""

    flowing_s: float = 0.001  # while input flows
    idle_s: float = 0.03  # maximum, at which an idle run uses less than 1 % of a core


class PollSchedule:
    """Pauses between two polls of the sources."""

    def __init__(self, logs: Iterable[SourceLog], times: LookTimes = LookTimes()) -> None:
        self._times = times
        self._input_at = time.monotonic()
        self._are_waking = all(log.wakes for log in logs)

    def found(self) -> None:
        """Record that there was input."""
        self._input_at = time.monotonic()

    def pause_s(self, due_in_s: float = LOOK_WOKEN_S) -> float:
        """Return the seconds to wait if there was no input.

        ``due_in_s``: the seconds until something may be due without input; 0 if a source may still
        hold it back.
        """
        if self._are_waking and due_in_s:
            return min(LOOK_WOKEN_S, max(self._times.flowing_s, due_in_s))
        idle_s = time.monotonic() - self._input_at
        return min(max(self._times.flowing_s, SLOWER * idle_s), self._times.idle_s)


class WakeSocket:
    """Unix datagram socket through which threads report new input.

    See ``wallaroo.spool.waking``.  No wake-up is lost between a poll of the sources and ``wait``:
    a datagram that arrived meanwhile waits in the socket.
    """

    def __init__(self, address: Path):
        self._address = str(address)
        self._note: PauseNote | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(self._address)
        except OSError as error:
            self.close()
            raise PeerError(
                f"sources cannot wake the driver through {address}: {error.strerror or error}. "
                "Set TMPDIR to a folder with a shorter name."
            ) from error
        with contextlib.suppress(OSError):  # without the note, input is published at once
            self._note = PauseNote(address)

    def note_pause(self, until: float) -> None:
        """Announce to publishers that no batch begins before ``until`` (monotonic)."""
        if self._note is not None:
            self._note.until = until

    def wait(self, seconds: float) -> None:
        """Return on new input, or after ``seconds``."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(seconds * 1e3)
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(READ_BYTES):
                pass

    def wake(self) -> None:
        """Wake ``wait`` up; from any thread."""
        with contextlib.suppress(OSError):
            self._socket.sendto(b"\0", self._address)

    def close(self) -> None:
        """Close the socket; ``wait`` must not be called again."""
        self._socket.close()
        if self._note is not None:
            self._note.close()
            self._note = None


def _nothing_planned(start: Ends) -> None:
    """Return None: no batch was planned ahead."""


def _nothing_between() -> None:
    """Do nothing between two batches."""


class Trigger:
    """The trigger of batches.

    One thread calls `next`, any thread `admit` and `end`.
    """

    def __init__(
        self,
        times: LookTimes = LookTimes(),
        hung_s: float = HUNG_S,
        planned: Callable[[Ends], Ends | None] = _nothing_planned,
        between: Callable[[], None] = _nothing_between,
        target_s: float = 0.0,
    ):
        """Begin held, with no socket.

        ``hung_s``: seconds without an answer after which a source is named.  ``planned`` returns
        the ends of a batch that was planned ahead, by its start.  ``between`` is called before each
        poll, in the thread of `next`, while no batch runs. ``target_s``: the run's latency target;
        0 if there is none.
        """
        self._times = times
        self._hung_s = hung_s
        self._planned = planned
        self._between = between
        self._cadence = Cadence(target_s)
        self.admitted = Admission()
        self._is_over = threading.Event()
        self._waiting = threading.Lock()  # held in `next`
        self._wakes: WakeSocket | None = None
        self._looks: PollSchedule | None = None
        self._asked: tuple[str, float] | None = None  # a source, and since when (monotonic)

    def open(self, address: Path) -> None:
        """Open the Unix socket through which sources report new input.  Raises PeerError."""
        self._wakes = WakeSocket(address)

    def admit(self, admission: Admission) -> None:
        """Set the next batch's admission."""
        self.admitted = admission
        self.wake()

    def next(self, batches: Batches) -> Ends | None:
        """Wait until a batch has something to do, and return its ends; None after `end`."""
        setup = batches.setup
        logs = setup.logs_by_name
        if self._looks is None:
            self._looks = PollSchedule(logs.values(), self._times)
        assert self._wakes is not None
        with self._waiting:
            return self._next(batches, logs, self._looks, self._wakes)

    def _next(
        self,
        batches: Batches,
        logs: Mapping[str, SourceLog],
        looks: PollSchedule,
        wakes: WakeSocket,
    ) -> Ends | None:
        self._cadence.ends(time.monotonic() + batches.answer_s)
        while not self._is_over.is_set():
            self._between()
            if pause_s := self._pause_s(logs):
                pause_s = min(pause_s, PAUSE_S)
                if not batches.settle(pause_s):
                    self.pause(pause_s)
                continue
            admitted = self.admitted
            start = batches.ends
            ends = start
            if not admitted.is_held:
                ends = self._planned(start) or self.ends(logs, start, admitted)
            if ends != start or (not admitted.is_held and batches.is_due):
                looks.found()
                events = sum(ends[name].events - start[name].events for name in logs)
                now = time.monotonic()
                self._cadence.begins(now, events, admitted.events_max)
                wakes.note_pause(now + self._cadence.pause_s(now))
                return ends
            pause_s = looks.pause_s(batches.due_in_s)
            if not batches.settle(pause_s):
                wakes.wait(pause_s)
        return None

    def _pause_s(self, logs: Mapping[str, SourceLog]) -> float:
        """Return the seconds until a batch may begin; 0 if all input has arrived and is large."""
        pause_s = self._cadence.pause_s(time.monotonic())
        if pause_s > PAUSE_S and have_ended(logs):
            return 0.0
        return pause_s

    def ends(self, logs: Mapping[str, SourceLog], start: Ends, admitted: Admission) -> Ends:
        """Return the ends of a batch that begins at ``start``; only in the thread of `next`."""
        most = admitted.events_most
        try:
            return plan_ends(start, logs, admitted.events_max, most, admitted.limits, self._ask)
        finally:
            self._asked = None

    def backlog(self, logs: Mapping[str, SourceLog], start: Ends) -> int:
        """Return how many events wait after ``start``; only in the thread of `next`."""
        events = 0
        try:
            for name, log in logs.items():
                self._ask(name)
                events += log.backlog(start[name])
        finally:
            self._asked = None
        return events

    @property
    def waiting_for(self) -> str:
        """Describe the source that has not reported its end for long; empty if there is none."""
        asked = self._asked
        if asked is None:
            return ""
        name, since = asked
        seconds = time.monotonic() - since
        if seconds < self._hung_s:
            return ""
        return f"source '{name}': it has not reported for {seconds:.0f} s how far it goes"

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``, or until `end`."""
        self._is_over.wait(seconds)

    @property
    def is_over(self) -> bool:
        """Return whether there is no further batch."""
        return self._is_over.is_set()

    def end(self) -> None:
        """Begin no further batches."""
        self._is_over.set()
        self.wake()

    def close(self) -> None:
        """End; close the socket once `next` has returned (never, if a source does not answer)."""
        self.end()
        if self._wakes is not None and self._waiting.acquire(timeout=CLOSE_S):
            self._wakes.close()
            self._waiting.release()

    def _ask(self, source: str) -> None:
        self._asked = source, time.monotonic()

    def wake(self) -> None:
        """Let `next` poll again now; from any thread."""
        if self._wakes is not None:
            self._wakes.wake()
