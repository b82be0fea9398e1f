"""RedisSourceConfig: the entries of a Redis stream as events."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from wallaroo.network.urls import url_problem
from wallaroo.sources.feeds.generator import unpickled
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import check_choice

ON_DATA_LOSS = ("stop", "skip")
ID = re.compile(r"\d+(-\d+)?|\$")


@dataclass(frozen=True, slots=True)
class RedisSourceConfig(SourceConfig[Event]):
    """A source that reads a Redis stream from ``start`` on, exactly once.

    ``url`` is ``redis://[[user]:password@]host:port/db``, ``rediss://`` with TLS.  Events are
    `RedisEntry`, or, with ``field``, that field's value, for the ``decoder``; an entry without it
    is skipped.  ``start`` is an id (``"0"``: from the beginning) or ``"$"`` (entries from now on);
    it applies to an application without a commit.  ``on_data_loss`` applies if entries were removed
    before they were read, or the stream is not the one that was read (it was created again, or
    restored from an older copy): the run ends (``"stop"``), or reading continues with the remaining
    entries (``"skip"``).  Needs redis.
    """

    kind: ClassVar[str] = "redis"
    label_form: ClassVar[str] = "redis stream {0.stream}"
    opener: ClassVar[str] = "wallaroo.connectors.redis.feed:open_feed"
    library: ClassVar[tuple[str, ...]] = ("redis",)

    name: str
    stream: str
    url: str = field(repr=False)  # may hold a password
    decoder: Decoder[Event] = unpickled
    field: str = ""
    start: str = "0"
    on_data_loss: str = "stop"

    def __post_init__(self) -> None:
        if problem := url_problem(self.url, "redis://host:6379/0", "redis", "rediss", "unix"):
            raise self._wrong(*problem)
        if not self.stream:
            raise self._wrong("stream='' is not a name.", "Name the stream's key.")
        if not ID.fullmatch(self.start):
            raise self._wrong(
                f"start={self.start!r} is not an id.", "Give '0', '$', or an entry's id."
            )
        check_choice(self, "on_data_loss", ON_DATA_LOSS)
        if bool(self.field) != (self.decoder is not unpickled):
            raise self._wrong(
                "field and decoder go together.",
                "Name the field whose value the decoder gets, or leave both out.",
            )
