"""What a committer's thread ended with: it may end before anything is committed."""

from __future__ import annotations

from collections.abc import Callable

from wallaroo.errors import WallarooError
from wallaroo.sinks import SinkCommitter


def error_of(committer: SinkCommitter, eventually: Callable[..., None]) -> str:
    """Wait for the error; return its text."""
    raised: list[WallarooError] = []

    def is_broken() -> bool:
        try:
            committer.backlog()
        except WallarooError as error:
            raised.append(error)
        return bool(raised)

    eventually(is_broken, "the error")
    return str(raised[0])
