"""IteratorSource: the events of an iterator, or of an async iterator.

Where it runs: the configuration is pickled; the iterator runs in a thread of a feeder process,
which writes its events to the spool.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Iterable
from typing import Any, ClassVar, NamedTuple

from wallaroo.sources.feed import Feed
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.sources.feeds.inbox import Inbox, InboxFeed, Pushed, framer_of
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Callback, Decoder

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
