"""Closing what was opened, in reverse, whatever goes wrong meanwhile.

Where it runs: driver.
"""

from __future__ import annotations

from collections.abc import Callable

from wallaroo.errors import InternalError, WallarooError


class Closers:
    """What has to be closed at the end of a run."""

    def __init__(self) -> None:
        self._closers: list[Callable[[], object]] = []

    def add(self, close: Callable[[], object]) -> None:
        """Call this at the end, before all that was added earlier."""
        self._closers.append(close)

    def close(self) -> WallarooError | None:
        """Close everything; return the first error."""
        first: WallarooError | None = None
        while self._closers:
            try:
                self._closers.pop()()
            except WallarooError as error:
                first = first or error
            except Exception as error:  # noqa: BLE001  # closing goes on: the first error is reported
                first = first or InternalError(f"while closing: {type(error).__name__}: {error}")
        return first
