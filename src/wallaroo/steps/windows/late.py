"""Late events, emitted by a step beside its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from wallaroo.steps.losses import CellOf, Loss
from wallaroo.steps.windows.spec import DROP, CountWindowSpec


class Now(Protocol):
    """Time of the current event, and its partition's watermark just before it."""

    event_ns: int
    watermark_ns: int


class LateEvent(Exception):
    """Reason for lateness: the event's windows had already fired."""


# called with a key, a late event of it, and the reason why it is late
Late = Callable[[Any, Any, LateEvent], None]


@dataclass(frozen=True, slots=True)
class AsLate:
    """Late event emitted by its step."""

    event: Any


def counted_late(now: Now, lost: CellOf, *, is_dropped: bool) -> Callable[[], None]:
    """Return a function that counts the current event as late."""
    late = lost(Loss.LATE if is_dropped else Loss.LATE_KEPT)
    behind = lost(Loss.LATE_BY_NS)

    def count() -> None:
        late[0] += 1
        behind[0] += now.watermark_ns - now.event_ns

    return count


def is_late(output: Any) -> bool:
    """Return whether this is a late event rather than a result."""
    return type(output) is AsLate


def no_late_events(spec: object) -> str:
    """Return why a step with this specification has no late events, or an empty string."""
    if isinstance(spec, CountWindowSpec):
        return "Count windows take every event: none is late."
    if getattr(spec, "is_open", False):
        return "Without a span, every event is joined: none is late."
    policy = getattr(spec, "policy", DROP)
    if policy != DROP:
        return f"Its late data policy is {policy!r}, so late events have a place already."
    return ""


def late_event(output: AsLate) -> Any:
    """Return the event itself."""
    return output.event
