"""Late events: what is wrong with one, and how it leaves a step beside the step's results.

Where it runs: everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wallaroo.windows.spec import DROP, CountWindowSpec


class LateEvent(Exception):
    """An event that came after its windows had fired."""


# takes a key, a late event of it, and why it is late
Late = Callable[[Any, Any, LateEvent], None]


@dataclass(frozen=True, slots=True)
class AsLate:
    """A late event on its way out of the step for which it came too late."""

    event: Any


def is_late(output: Any) -> bool:
    """Whether this is a late event, and not a result."""
    return type(output) is AsLate


def no_late_events(spec: object) -> str:
    """Why a step with this specification has no late events to give; empty if it has."""
    if isinstance(spec, CountWindowSpec):
        return "Count windows take every event: none is late."
    policy = getattr(spec, "policy", DROP)
    if policy != DROP:
        return f"Its late data policy is {policy!r}, so late events have a place already."
    return ""


def late_event(output: AsLate) -> Any:
    """The event itself."""
    return output.event
