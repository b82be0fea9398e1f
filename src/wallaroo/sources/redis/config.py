"""RedisSourceConfig: the entries of a Redis stream as events.

Where it runs: the configuration travels; the stream is read by a feeder process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.errors import optional_library
from wallaroo.sources.feed import Feed
from wallaroo.sources.generator import unpickled
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps import Decoder

ID = re.compile(r"\d+(-\d+)?|\$")


@dataclass(frozen=True, slots=True)
class RedisSourceConfig(SourceConfig[Event]):
    """Read a Redis stream from entry ``start`` on; exactly once.

    ``url`` is ``redis://[[user]:password@]host:port/db``, ``rediss://`` with TLS.  Events are
    `RedisEntry`, or, with ``field``, that field's value, for the ``decoder``; an entry without it
    is passed over.  ``start`` is an id (``"0"``: from the beginning) or ``"$"``, what comes from
    now on; it counts for an application without a commit.  The stream has to keep what was not read
    yet.  Needs redis: ``pip install 'wallaroo-spark[redis]'``.
    """

    kind: ClassVar[str] = "redis"

    name: str
    stream: str
    url: str = field(repr=False)  # may hold a password
    decoder: Decoder[Event] = unpickled
    field: str = ""
    start: str = "0"

    def __post_init__(self) -> None:
        if not self.stream:
            raise self._wrong("stream='' is no name.", "Name the stream's key.")
        if not ID.fullmatch(self.start):
            raise self._wrong(f"start={self.start!r} is no id.", "Give '0', '$', or an entry's id.")
        if bool(self.field) != (self.decoder is not unpickled):
            raise self._wrong(
                "field and decoder go together.",
                "Name the field whose value the decoder gets, or leave both out.",
            )

    @property
    def label(self) -> str:
        return f"redis stream {self.stream}"

    def open_feed(self, resume: bytes) -> Feed:
        user = f"Source '{self.name}' ({self.label})"
        with optional_library(user, "redis", "redis"):
            from wallaroo.sources.redis.feed import RedisFeed
        return RedisFeed(
            self.name, self.stream, self.url, self.field, resume.decode() or self.start
        )
