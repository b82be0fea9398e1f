"""The feed of a Redis stream, from the last stored entry on.

The invariant: entries leave the feed only after a look at the stream, later than they were read,
has shown that it is still the one that was read before.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from wallaroo.connectors.redis.client import ERRORS, connected
from wallaroo.connectors.redis.entry import RedisEntry
from wallaroo.connectors.redis.position import BEGINNING, EntryPosition, StreamLoss, StreamSnapshot
from wallaroo.connectors.redis.source import RedisSourceConfig
from wallaroo.errors import PeerError
from wallaroo.network.client_errors import readable_address
from wallaroo.network.urls import place_of
from wallaroo.sources.feed import FrameRun, framed, framed_event

ENTRIES_MAX = 1000  # requested at once
WAIT_MS = 100  # for an entry, before the feed does other work
RETRY_S = 1.0
NO_STREAM = "no such key"  # in the answer of XINFO

_log = logging.getLogger(__name__)


class RedisFeed:
    """The feed from a position on.

    It waits for an unavailable server.
    """

    def __init__(self, config: RedisSourceConfig[Any], position: EntryPosition):
        self._config = config
        self._position = position
        self._is_begun = False
        self._newest = BEGINNING  # the stream's last entry when the feed was opened
        with readable_address(f"Source '{config.name}'"):
            self._client: Any = connected(config.url)

    def next_run(self) -> FrameRun:
        """Return entries that came.

        Raises PeerError for errors that are not transient, and for a stream that was replaced or
        has lost entries.
        """
        try:
            if not self._is_begun:
                self._begin()
                return self._empty()
            name = self._config.stream
            answer = self._client.xread({name: self._position.after}, ENTRIES_MAX, WAIT_MS)
            seen = self._look()
        except ERRORS.types as error:
            return self._failed(error)
        entries = answer[0][1] if answer else []
        moved = self._position.moved(entries)
        loss = self._position.loss(moved, seen)
        problem = "" if loss is None else self._skip(loss)
        if loss is not None and not loss.entries:
            self._position = EntryPosition(BEGINNING).adopted(seen)
            return self._empty(problem=problem)
        if loss is not None and moved.read is not None:
            moved = replace(moved, read=moved.read + loss.entries)
        self._position = moved.adopted(seen)
        frames = [frame for entry in entries if (frame := self._frame(*entry)) is not None]
        return FrameRun(
            b"".join(frames),
            len(frames),
            self._position.to_bytes(),
            problem=problem,
            skipped=loss.entries if loss is not None else 0,
            is_caught_up=not entries or self._position.is_at_least(self._newest),
        )

    def _begin(self) -> None:
        """Adopt the present stream, or compare it with the one that was read."""
        if self._position.after == "$":  # existing entries are never read
            seen = self._look(BEGINNING)
            self._position = EntryPosition(seen.last, seen.added)
        else:
            seen = self._look()
        self._newest = seen.last
        if self._position.loss(self._position, seen) is None:
            self._position = self._position.adopted(seen)
        self._is_begun = True  # a loss is found again after the first read

    def _look(self, after: str = "") -> StreamSnapshot:
        own = after or self._position.after
        pipeline = self._client.pipeline(transaction=True)
        pipeline.xinfo_stream(self._config.stream)
        pipeline.xrange(self._config.stream, own, own)
        answer, entry = pipeline.execute(raise_on_error=False)
        if isinstance(answer, Exception):
            if NO_STREAM in str(answer):
                return StreamSnapshot()
            raise answer
        return StreamSnapshot.of(answer, entry)

    def _skip(self, loss: StreamLoss) -> str:
        """Report a skipped loss.  Raises PeerError if the source must not skip it."""
        source = self._config
        where = f"Redis stream '{source.stream}' at {place_of(source.url)}"
        after = self._position.after
        if loss.entries:
            what = f"{where} has lost {loss.why} after {after} before they were read"
            skipping = "continued without them"
            ways = "To continue without them, configure the source with on_data_loss='skip'."
        else:
            what = f"{where} is not the one that was read until entry {after}: {loss.why}"
            skipping = "it is read from its start"
            ways = (
                "Restore it; or, to read it from its start, configure the source with "
                "on_data_loss='skip', or give it another name or the run another --checkpoint "
                "folder."
            )
        if source.on_data_loss != "skip":
            raise PeerError(f"Source '{source.name}': {what}. {ways}")
        _log.warning("source '%s': %s: %s", source.name, what, skipping)
        return f"{what}: {skipping}"

    def _empty(self, pause_s: float = 0.0, problem: str = "") -> FrameRun:
        return FrameRun(b"", 0, self._position.to_bytes(), pause_s, problem=problem)

    def _frame(self, id: bytes, fields: dict[bytes, bytes]) -> bytes | None:
        if not self._config.field:
            return framed_event(RedisEntry(id.decode(), fields))
        value = fields.get(self._config.field.encode())
        return None if value is None else framed(value)

    def _failed(self, error: Exception) -> FrameRun:
        own = self._config
        words = f"Redis at {place_of(own.url)}: {ERRORS.sentence(error)}"
        if not ERRORS.is_transient(error):
            raise PeerError(
                f"Source '{own.name}' cannot read stream '{own.stream}': {words}. Correct "
                f"the address, the rights or the key, then run again."
            ) from error
        return self._empty(RETRY_S, words)


def open_feed(config: RedisSourceConfig[Any], resume: bytes) -> RedisFeed:
    return RedisFeed(config, EntryPosition.of(resume, config.start))
