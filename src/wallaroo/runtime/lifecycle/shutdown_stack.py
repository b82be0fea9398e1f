"""Closing of a run's parts in reverse order, even after errors."""

from __future__ import annotations

from collections.abc import Callable

from wallaroo.errors import InternalError, WallarooError


class ShutdownStack:
    """An ``ExitStack`` that continues after errors, for closing a run."""

    def __init__(self) -> None:
        self._closers: list[Callable[[], object]] = []

    def add(self, close: Callable[[], object]) -> None:
        """Add a function to call at the end, before all earlier ones."""
        self._closers.append(close)

    def close(self) -> WallarooError | None:
        """Close everything; return the first error."""
        first: WallarooError | None = None
        while self._closers:
            try:
                self._closers.pop()()
            except WallarooError as error:
                first = first or error
            except Exception as error:  # noqa: BLE001  # closing continues: the first error is reported
                first = first or InternalError(f"while closing: {type(error).__name__}: {error}")
        return first
