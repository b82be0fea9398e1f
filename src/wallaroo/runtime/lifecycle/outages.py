"""Outages of the systems that sources read.

They are in the status, with their beginning, and in the log if they last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from wallaroo.runtime.lifecycle.sink_waits import LOGGED_S, clock

_log = logging.getLogger("wallaroo.run")


class Outage:
    """The outage of one source, if there is one."""

    def __init__(self, source: str, now: Callable[[], float] = time.time):
        self._source = source
        self._now = now
        self._since: float | None = None  # unix
        self._is_logged = False

    def note(self, error: str) -> str:
        """Note the source's error; return it with its beginning, empty if there is none."""
        now = self._now()
        if not error:
            if self._is_logged and self._since is not None:
                _log.warning(
                    "source '%s' is available again after %.0f s", self._source, now - self._since
                )
            self._since = None
            self._is_logged = False
            return ""
        if self._since is None:
            self._since = now
        where = "" if error.lower().startswith("source ") else f"source '{self._source}': "
        words = f"{where}{error.removesuffix('.')}, since {clock(self._since)}"
        if not self._is_logged and now - self._since >= LOGGED_S:
            self._is_logged = True
            _log.warning("%s", words)
        return words
