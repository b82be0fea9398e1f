"""Redis clients with our defaults, and their errors' meaning for runs."""

from __future__ import annotations

from typing import Any

import redis

from wallaroo.network.client_errors import ClientErrors, is_untrusted

TIMEOUT_S = 10.0
ChangedError: type[Exception] = redis.WatchError  # a watched key changed after it was read
_PASSING = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.BusyLoadingError,
    redis.OutOfMemoryError,
    redis.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
    ChangedError,
)
_LASTING = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
# first words of answers that mean "not now", and for which the client has no class
_PASSING_ANSWERS = ("MISCONF", "BUSY ", "NOREPLICAS")


def connected(url: str) -> Any:
    """Return a client that connects with its first command.

    Raises ValueError or TypeError for an address that cannot be used.
    """
    own = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}
    client = redis.Redis.from_url(url, **own)
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)  # the options of the query, read only here
    except redis.RedisError as error:
        raise ValueError(str(error)) from None
    return client


def _is_transient(error: Exception) -> bool:
    if isinstance(error, _LASTING) or is_untrusted(error):
        return False
    return isinstance(error, _PASSING) or str(error).startswith(_PASSING_ANSWERS)


ERRORS = ClientErrors((redis.RedisError,), _is_transient)
