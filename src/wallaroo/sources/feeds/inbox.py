"""The inbox of a source, a bounded queue before its feed.

It is for sources that push events: the user's code, or a client library, adds them from its own
thread.

The invariants:

* Events leave the inbox in order of arrival, each with the position after it; the last one's
  position is stored atomically with them.
* `Pushed.stored` is called after the event is on disk, never before.
* At most ``EVENTS_MAX`` events or ``BYTES_MAX`` bytes wait (one event may be larger): a caller that
  puts more waits.  So if the spool is full, the user's code waits too.
* Only `Inbox.end` ends a source.  Work that returns without it is reported and called again, after
  all that it put is stored; so is work of ours that raises (for example, without a free
  descriptor), while an exception of the user's code ends the run.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from wallaroo.errors import PeerError
from wallaroo.sources.failures import after, failure_of
from wallaroo.sources.feed import FrameRun, framed, framed_event
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.steps.kinds import Decoder

LOGGER = logging.getLogger("wallaroo.sources")
EVENTS_MAX = 4096
BYTES_MAX = 8 << 20
RUN_BYTES_MAX = 256 * 1024  # taken per call
IDLE_S = 0.1  # without an event, the feed does other work
# until work that stopped is called again; doubled each time, until events arrive
AGAIN_S = 0.5
AGAIN_S_MAX = 30.0


class Pushed(NamedTuple):
    """An event's frame, the position after it, and a callback once stored.

    ``skipped``: events before it that were lost before they were read, and are left out.
    """

    frame: bytes
    position: Any
    stored: Callable[[], object] | None
    skipped: int = 0


class Inbox:
    """A bounded queue of events; see the module's docstring."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Pushed] = deque()
        self._bytes = 0
        self.is_ended = False
        self.accepted = 0  # events so far
        self._failure: Exception | None = None
        self.problem = ""  # why no events arrive at the moment
        self.is_away = False  # the other system was not reached yet: nothing can come
        self.knows_present = False  # `reach_present` will be called
        self._put = 0  # events, so far
        self._taken = 0
        self._present: int | None = None  # the number of events that were there at the beginning

    def put(self, pushed: Pushed) -> None:
        """Add an event; wait while the inbox is full."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._add(pushed)

    def try_put(self, pushed: Pushed) -> bool:
        """Add an event if there is room; return whether there was."""
        with self._changed:
            if not self._has_room():
                return False
            self._add(pushed)
            return True

    def reach_present(self) -> None:
        """Note that everything that the other system held at the beginning was put."""
        with self._changed:
            self._present = self._put if self._present is None else self._present

    @property
    def is_caught_up(self) -> bool | None:
        """Return whether all of it was taken; None if unknown."""
        if not self.knows_present:
            return None
        return self._present is not None and self._taken >= self._present

    def end(self, failure: Exception | None = None) -> None:
        """End the source, perhaps because of a failure: nothing more comes."""
        with self._changed:
            if not self.is_ended:
                self.is_ended = True
                self._failure = failure
            self._changed.notify_all()

    def take(self, wait_s: float) -> list[Pushed] | None:
        """Return waiting events, at most about ``RUN_BYTES_MAX``; None at the end.

        An empty list if nothing came in time.  Raises the failure that the inbox was ended with,
        after its last event.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.is_ended, wait_s)
            events: list[Pushed] = []
            size = 0
            while self._waiting and size < RUN_BYTES_MAX:
                events.append(self._waiting.popleft())
                size += len(events[-1].frame)
            self._bytes -= size
            self._taken += len(events)
            self._changed.notify_all()
            if not events and self.is_ended:
                if self._failure is not None:
                    raise self._failure
                return None
            return events

    def _has_room(self) -> bool:
        is_full = len(self._waiting) >= EVENTS_MAX or self._bytes >= BYTES_MAX
        return self.is_ended or not is_full

    def _add(self, pushed: Pushed) -> None:
        if not self.is_ended:  # anything after the end is dropped
            self._waiting.append(pushed)
            self.accepted += 1
            self._bytes += len(pushed.frame)
            self._put += 1
            self._changed.notify_all()


class InboxFeed:
    """A feed of events that ``work`` puts into an inbox.

    ``work`` runs in a thread of its own.
    """

    def __init__(
        self,
        source: str,
        work: Callable[[Inbox, Any], None],
        resume: bytes,
        *,
        is_user_code: bool = False,
    ):
        """Create a feed; ``work`` is called with the inbox and the position to continue after.

        That is the position of the last stored event (None: at the beginning).  ``work`` ends the
        inbox if nothing more comes, and is called again if it stops without that.
        """
        self._is_user_code = is_user_code
        self._source = source
        self._work = work
        self._inbox = Inbox()
        self._resume = resume
        self._thread: threading.Thread | None = None
        self._pause_s = AGAIN_S
        self._again_at: float | None = None  # monotonic; None: nothing has stopped

    def next_run(self) -> FrameRun | None:
        """Return the waiting events.  Raises UserCodeError or PeerError if the user's code did.

        Raises UserCodeError or PeerError if the user's code did.
        """
        if self._thread is None:
            self._start()
        events = self._inbox.take(IDLE_S)
        if events is None:
            return None
        if not events:
            self._look_after_work()
            inbox = self._inbox
            return FrameRun(
                b"",
                0,
                self._resume,
                problem=inbox.problem,
                is_away=inbox.is_away,
                is_caught_up=inbox.is_caught_up,
            )
        self._pause_s = AGAIN_S
        self._resume = pickle.dumps(events[-1].position)
        wanted = [pushed.stored for pushed in events if pushed.stored is not None]
        frames = b"".join(pushed.frame for pushed in events)
        return FrameRun(
            frames,
            len(events),
            self._resume,
            stored=lambda: _call(wanted),
            problem=self._inbox.problem,
            skipped=sum(pushed.skipped for pushed in events),
            is_caught_up=self._inbox.is_caught_up,
        )

    def _start(self) -> None:
        self._again_at = None
        self._thread = threading.Thread(target=self._live, name=self._source, daemon=True)
        self._thread.start()

    def _look_after_work(self) -> None:
        """Call work that has stopped again, after a pause.

        Nothing that it put waits, and the run before this one is stored, so that it continues after
        the last event.
        """
        assert self._thread is not None
        if self._thread.is_alive():
            return
        now = time.monotonic()
        if self._again_at is None:
            self._again_at = now + self._pause_s
            self._pause_s = min(AGAIN_S_MAX, 2 * self._pause_s)
        elif now >= self._again_at:
            self._inbox.problem = ""
            self._start()

    def _live(self) -> None:
        position = pickle.loads(self._resume) if self._resume else None
        try:
            self._work(self._inbox, position)
        except PeerError as error:
            self._inbox.end(error)
        except BaseException as error:  # noqa: BLE001  # the boundary to the user's source, in its thread
            if self._is_user_code:
                self._inbox.end(failure_of(self._source, error, after(position)))
            else:
                self._stopped(f"{type(error).__name__}: {error}")
        else:
            self._stopped("it returned without an end")

    def _stopped(self, why: str) -> None:
        if not self._inbox.is_ended:
            self._inbox.problem = f"its feed stopped ({why}) and is started again"
            LOGGER.warning(
                "Source %s: its feed stopped (%s) and is started again", self._source, why
            )


def _call(wanted: list[Callable[[], object]]) -> None:
    for stored in wanted:
        stored()


def framer_of(decoder: Decoder[Any]) -> Callable[[Any], bytes]:
    """Return the function that frames events: pickles, or payloads if there is a decoder."""
    return framed_event if decoder is unpickled else _payload


def _payload(payload: Any) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError(
            f"a source with a decoder takes payloads (bytes), got {type(payload).__name__}"
        )
    return framed(bytes(payload))
