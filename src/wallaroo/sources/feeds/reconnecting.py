"""Reader that reconnects to a server as needed."""

from __future__ import annotations

import time
from collections.abc import Callable

from wallaroo.errors import PeerError
from wallaroo.network.client_errors import ClientErrors
from wallaroo.sources.feeds.inbox import Inbox


def keep_reading(
    read: Callable[[], None],
    inbox: Inbox,
    errors: ClientErrors,
    place: str,
    problem: str,
    ways: str,
    retry_s: float,
    retry_s_max: float = 0.0,
) -> None:
    """Call ``read``, over one connection, again whenever that breaks, until the inbox has ended.

    The status names ``place`` meanwhile.  The pause doubles up to ``retry_s_max``, until events
    arrive.  Raises PeerError for a permanent error: ``problem`` begins its text, ``ways`` ends it.
    """
    inbox.is_away = True
    pause_s = retry_s
    while not inbox.is_ended:
        before = inbox.accepted
        try:
            read()
        except errors.types as error:
            why = errors.sentence(error)
            if not errors.is_transient(error):
                raise PeerError(f"{problem}: {why}. {ways}, then run again.") from error
            inbox.problem = f"{place} ({why})"
        if inbox.accepted > before:
            pause_s = retry_s
        time.sleep(pause_s)
        pause_s = max(retry_s, min(retry_s_max, 2 * pause_s))
