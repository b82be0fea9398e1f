"""PollingSource: a user's own source that is polled for new events.

Where it runs: the configuration is pickled; `poll` is called in a feeder process of its own, which
writes the result to the spool.

The invariant: events and the position after them are stored atomically. So stored events are not
polled again, and all others are.
"""

from __future__ import annotations

import pickle
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from wallaroo.errors import PeerError
from wallaroo.sources.failures import after, failure_of
from wallaroo.sources.feed import Feed, FrameRun, framed_event
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder


class PollingSource(SourceConfig[Event]):
    """The base class of polled sources; subclasses define `poll`.

    Exactly once, if `poll` of the same position returns the events after it again.
    """

    kind: ClassVar[str] = "polling"
    every_s: ClassVar[float] = 1.0  # between two polls if the first had nothing

    def __init__(self, name: str):
        self.name = name
        self.decoder: Decoder[Event] = unpickled

    @abstractmethod
    def poll(self, position: Any) -> tuple[Iterable[Any], Any] | None:
        """Return events after ``position``, and the position after them; ``None`` at the end.

        Any number of events, ideally some thousands; ``None`` ends the source permanently.

        ``position`` is the one that the last poll returned, also after a restart; None at the
        beginning.  Events and positions have to be picklable.  Raise PeerError for errors of the
        outside that should end the run.
        """

    @property
    def label(self) -> str:
        return f"polling {type(self).__name__}"

    def open_feed(self, resume: bytes) -> Feed:
        return PollingFeed(self, resume)


class PollingFeed:
    """The feed that polls, and frames the events."""

    def __init__(self, source: PollingSource[Any], resume: bytes):
        self._source = source
        self._position: Any = pickle.loads(resume) if resume else None

    def next_run(self) -> FrameRun | None:
        """Return the events of one poll.  Raises UserCodeError if it raises."""
        try:
            answer = self._source.poll(self._position)
            if answer is None:
                return None
            events, position = answer
            frames = [framed_event(event) for event in events]
            resume = pickle.dumps(position)
        except PeerError:
            raise
        except Exception as error:  # noqa: BLE001  # the boundary to the user's source
            raise failure_of(self._source.name, error, after(self._position)) from None
        self._position = position
        pause_s = 0.0 if frames else self._source.every_s
        is_caught_up = not frames
        return FrameRun(b"".join(frames), len(frames), resume, pause_s, is_caught_up=is_caught_up)
