"""A source's current record, for error texts.

This costs nothing per event: after a failure, the current record is determined from the iterator
over its run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import length_hint
from typing import Any

# the facts about a record of a run, by its number
Origin = Callable[[int], Mapping[str, Any]]


def _unknown(number: int) -> Mapping[str, Any]:
    return {}


class Reading:
    """A run of source records passing through the first stage."""

    def __init__(self) -> None:
        self._origin: Origin = _unknown
        self._left: Iterator[Any] = iter(())
        self._end = 0

    def begin(self, origin: Origin | None) -> None:
        """Set the facts about the next records; None if there are none."""
        self._origin = _unknown if origin is None else origin

    def over(self, payloads: list[Any], first: int = 0) -> Iterator[Any]:
        """Return an iterator over records of the run, starting at ``first``."""
        self._end = first + len(payloads)
        self._left = iter(payloads)
        return self._left

    def facts(self) -> Mapping[str, Any]:
        """Return the facts about the current record.

        >>> reading = Reading()
        >>> reading.begin(lambda number: {"offset": 100 + number})
        >>> for record in reading.over(["a", "b", "c"]):
        ...     if record == "b":
        ...         print(reading.facts())
        {'offset': 101}
        """
        return self._origin(self._end - length_hint(self._left) - 1)
