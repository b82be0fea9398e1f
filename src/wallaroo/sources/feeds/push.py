"""PushSource and IteratorSource: events of a callback, or of an iterator.

Where it runs: the configuration is pickled; the user's code runs in a thread of a feeder process,
which writes its events to the spool.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any, ClassVar, NamedTuple

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
        self, name: str, subscribe: Callable[[Push], object], decoder: Decoder[Event] = unpickled
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


OPEN = "Give a function that returns the events after it: def open_events(after): ..."
FULL_S = 0.01  # between two checks of an async iterator whether there is room


class At(NamedTuple):
    """An event with the position after it, from which a restart continues."""

    event: Any
    position: Any


class IteratorSource(SourceConfig[Event]):
    """A source of the events of ``open_events(after)``, which ends with them.

    It returns an iterable or an async iterable, and may be a generator function.

    ``after`` is None at the beginning.  After a restart it is the position of the last event that
    is stored: its number, counted from 1, or the one given with it, ``At(event, position)``.
    Exactly once, if the iterator continues after that position.  The iterator waits while the
    backlog is at its bound. With a ``decoder`` events are its payloads (bytes); otherwise anything
    picklable.

    The iterator runs in a thread of the feeder process, which writes what it yields to the spool.
    """

    kind: ClassVar[str] = "iterator"
    may_end: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        open_events: Callable[[Any], Iterable[Any] | AsyncIterable[Any]],
        decoder: Decoder[Event] = unpickled,
    ):
        self.name = name
        self.decoder = decoder
        self._open = Callback(open_events)
        opened: Any = open_events
        if not callable(opened):
            what = f"open_events is {opened!r:.60}, not a function."
            raise self._wrong(what, OPEN)
        try:
            inspect.signature(open_events).bind(None)
        except TypeError as error:
            what = f"open_events cannot be called with one argument, a position: {error}."
            raise self._wrong(what, OPEN) from None
        except ValueError:
            pass  # some built-in functions have no signature

    @property
    def label(self) -> str:
        return f"iterator {getattr(self._open.function, '__name__', self._open.function)}"

    def open_feed(self, resume: bytes) -> Feed:
        return InboxFeed(self.name, self._run, resume, is_user_code=True)

    def _run(self, inbox: Inbox, position: Any) -> None:
        events = self._open.function(position)
        if not hasattr(events, "__aiter__") and not hasattr(events, "__iter__"):
            name = getattr(self._open.function, "__name__", "open_events")
            raise TypeError(f"{name} returned {events!r:.60}, not an iterable or async iterable")
        number = position if isinstance(position, int) else 0
        if hasattr(events, "__aiter__"):
            asyncio.run(self._put_async(inbox, events, number))
        else:
            self._put(inbox, events, number)
        inbox.end()

    def _put(self, inbox: Inbox, events: Iterable[Any], number: int) -> None:
        frame = framer_of(self.decoder)
        for number, event in enumerate(events, number + 1):  # noqa: B020  # it continues the count
            inbox.put(_pushed(frame, event, number))

    async def _put_async(self, inbox: Inbox, events: AsyncIterable[Any], number: int) -> None:
        frame = framer_of(self.decoder)
        async for event in events:
            number += 1
            pushed = _pushed(frame, event, number)
            while not inbox.try_put(pushed):
                await asyncio.sleep(FULL_S)


def _pushed(frame: Callable[[Any], bytes], event: Any, number: int) -> Pushed:
    if type(event) is At:
        return Pushed(frame(event.event), event.position, None)
    return Pushed(frame(event), number, None)
