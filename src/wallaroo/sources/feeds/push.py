"""PushSource: events that a client library calls back with.

Where it runs: the configuration is pickled; the user's code runs in a thread of a feeder process,
which writes what is pushed to the spool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

from wallaroo.errors import PeerError
from wallaroo.sources.failures import after, failure_of
from wallaroo.sources.feed import Feed
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed, framer_of
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Callback, Decoder


class Push:
    """The callback that a subscriber calls with each event, from any thread."""

    def __init__(self, source: str, inbox: Inbox, frame: Callable[[Any], bytes]):
        self._source = source
        self._inbox = inbox
        self._frame = frame
        self._is_ended = threading.Event()

    def __call__(self, event: Any, stored: Callable[[], object] | None = None) -> None:
        """Add an event; wait while the backlog is at its bound.

        ``stored`` is called, in another thread, when the event is on disk: the moment to
        acknowledge it to its sender.
        """
        try:
            frame = self._frame(event)
        except Exception as error:
            self.fail(error)
            raise
        self._inbox.put(Pushed(frame, None, stored))

    def end(self) -> None:
        """End the source after all pushed events."""
        self._inbox.end()
        self._is_ended.set()

    def fail(self, error: Exception) -> None:
        """End the run with this error after all pushed events: the origin of events is broken."""
        known = isinstance(error, PeerError)
        self._inbox.end(error if known else failure_of(self._source, error, after(None)))
        self._is_ended.set()

    def wait(self) -> None:
        """Wait for `end`."""
        self._is_ended.wait()


class PushSource(SourceConfig[Event]):
    """A source whose ``subscribe(push)`` arranges for ``push(event)`` with every event.

    At least once, if the sender resends unacknowledged events: the ``stored`` of ``push(event,
    stored)`` is called when the event may be acknowledged.  An event that is pushed but not yet
    stored is lost if the process dies. ``subscribe`` may return at once or run as long as it likes;
    ``push.end()`` ends the source. With a ``decoder`` events are payloads (bytes) for it; else
    anything that can be pickled.
    """

    kind: ClassVar[str] = "push"

    def __init__(
        self,
        name: str,
        subscribe: Callable[[Push], object],
        decoder: Decoder[Event] = unpickled,
    ):
        self.name = name
        self.decoder = decoder
        self._subscribe = Callback(subscribe)

    @property
    def label(self) -> str:
        return f"push {getattr(self._subscribe.function, '__name__', self._subscribe.function)}"

    def open_feed(self, resume: bytes) -> Feed:
        return InboxFeed(self.name, self._run, resume, is_user_code=True)

    def _run(self, inbox: Inbox, position: Any) -> None:
        push = Push(self.name, inbox, framer_of(self.decoder))
        kept = self._subscribe.function(push)  # its result may have to stay alive
        push.wait()
        del kept
