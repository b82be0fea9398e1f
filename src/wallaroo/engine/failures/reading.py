"""The records that a source is read from, for texts about those that fail.

Where it runs: pure.

Nothing is done per event: which record is under way is read off the iterator over a run of them,
when one has failed.
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
    """A run of a source's records on its way through the first stage."""

    def __init__(self) -> None:
        self._origin: Origin = _unknown
        self._left: Iterator[Any] = iter(())
        self._end = 0

    def begin(self, origin: Origin | None) -> None:
        """Set the facts about the next records; None if there are none."""
        self._origin = _unknown if origin is None else origin

    def over(self, payloads: list[Any], first: int = 0) -> Iterator[Any]:
        """Return an iterator over records of the run, from the ``first`` on."""
        self._end = first + len(payloads)
        self._left = iter(payloads)
        return self._left

    def facts(self) -> Mapping[str, Any]:
        """Return the facts about the record under way.

        >>> reading = Reading()
        >>> reading.begin(lambda number: {"offset": 100 + number})
        >>> for record in reading.over(["a", "b", "c"]):
        ...     if record == "b":
        ...         print(reading.facts())
        {'offset': 101}
        """
        return self._origin(self._end - length_hint(self._left) - 1)
