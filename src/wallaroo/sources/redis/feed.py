"""The feed of a Redis stream: entries after the last one that is stored.

Where it runs: feeder processes.  It imports redis, which is optional.
"""

from __future__ import annotations

from typing import Any

from wallaroo.clients.redis import ERRORS, connected, is_transient, place_of, sentence
from wallaroo.errors import PeerError
from wallaroo.sources.feed import Run, framed, framed_event
from wallaroo.sources.redis.entry import RedisEntry

ENTRIES_MAX = 1000  # asked for at once
WAIT_MS = 100  # for an entry, before the feed looks after other things
RETRY_S = 1.0


class RedisFeed:
    """Reads on from an id; a server that is away is waited for."""

    def __init__(self, source: str, stream: str, url: str, field: str, after: str):
        self._source = source
        self._stream = stream
        self._url = url
        self._field = field.encode()
        self._after = after
        try:
            self._client: Any = connected(url)
        except ValueError as error:
            raise PeerError(f"Source '{source}': the address cannot be read: {error}.") from None

    def next_run(self) -> Run:
        """Return entries that came.  Raises PeerError for what is not transient."""
        try:
            if self._after == "$":  # what was there at the first look is not read, whatever happens
                self._after = self._newest()
                return self._empty()
            found = self._client.xread({self._stream: self._after}, ENTRIES_MAX, WAIT_MS)
        except ERRORS as error:
            return self._failed(error)
        entries = found[0][1] if found else []
        if not entries:
            return self._empty()
        self._after = entries[-1][0].decode()
        frames = [frame for entry in entries if (frame := self._frame(*entry)) is not None]
        return Run(b"".join(frames), len(frames), self._after.encode())

    def _empty(self, pause_s: float = 0.0, problem: str = "") -> Run:
        return Run(b"", 0, self._after.encode(), pause_s, problem=problem)

    def _newest(self) -> str:
        newest = self._client.xrevrange(self._stream, count=1)
        return str(newest[0][0].decode()) if newest else "0"

    def _frame(self, id: bytes, fields: dict[bytes, bytes]) -> bytes | None:
        if not self._field:
            return framed_event(RedisEntry(id.decode(), fields))
        value = fields.get(self._field)
        return None if value is None else framed(value)

    def _failed(self, error: Exception) -> Run:
        words = f"Redis at {place_of(self._url)}: {sentence(error)}"
        if not is_transient(error):
            raise PeerError(
                f"Source '{self._source}' cannot read stream '{self._stream}': {words}. Correct "
                f"the address, the rights or the key, then run again."
            ) from error
        return self._empty(RETRY_S, words)
