"""Redis clients with our defaults, and what their errors mean for a run.

Where it runs: driver and feeder processes.  It imports redis, which is optional: import it where a
Redis source or sink is opened.
"""

from __future__ import annotations

from typing import Any

import redis

TIMEOUT_S = 10.0
ERRORS: tuple[type[Exception], ...] = (redis.RedisError,)
_PASSING = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)
_LASTING = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
# prefixes of answers that say: not now
_PASSING_ANSWERS = (
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "OOM",
    "MISCONF",
)


def connected(url: str) -> Any:
    """Return a client of a server; it connects with its first command.  Raises ValueError for an
    address that cannot be read.
    """
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)


def is_transient(error: Exception) -> bool:
    """Whether the same command may succeed later without anybody's doing."""
    if isinstance(error, _LASTING):
        return False
    return isinstance(error, _PASSING) or str(error).startswith(_PASSING_ANSWERS)


def sentence(error: Exception) -> str:
    """Return an error on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def place_of(url: str) -> str:
    """Return an address without its password."""
    scheme, _, rest = url.rpartition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
