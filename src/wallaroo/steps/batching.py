"""The step ``batch``, a key's events in lists, and ``latest_per_key``.

Each list is emitted when it is full, when it has waited long enough, or when all input has ended.

Waiting events are state, so they are committed and survive a crash; a key without waiting events
has no state.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from wallaroo.steps.context import Context
from wallaroo.steps.kinds import STOP, Callback, StateComputationMulti, Step, Timing

Event = TypeVar("Event")

_FULL_WAIT = "wait"  # the timer of the oldest event that waits


class Waiting(Generic[Event]):
    """A key's waiting events."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[Event] = []


class _Batching:
    """The step's function, called with each event of a key."""

    def __init__(self, most: int, within_ns: int | None, place: str):
        self.most = most
        self.within_ns = within_ns
        self.place = place  # the user's line

    def __call__(
        self, event: Any, waiting: Waiting[Any], context: Context
    ) -> list[list[Any]] | None:
        waiting.events.append(event)
        count = len(waiting.events)
        if count >= self.most:
            if self.within_ns is not None and count > 1:
                context.cancel_timer(_FULL_WAIT)
            return _given(waiting, context)
        if self.within_ns is not None and count == 1:
            context.set_timer_after(_FULL_WAIT, self.within_ns, processing=True)
        return None


def _given(waiting: Waiting[Any], context: Context) -> list[list[Any]]:
    events = waiting.events
    context.drop_state()
    return [events]


def _waited(waiting: Waiting[Any], context: Context, name: str) -> list[list[Any]]:
    """Emit, on the timer, events that have waited long enough."""
    return _given(waiting, context)


def _ended(waiting: Waiting[Any], context: Context) -> list[list[Any]]:
    return _given(waiting, context) if waiting.events else []


class BatchEvents(StateComputationMulti[Event, Waiting[Event], list[Event]]):
    """A key's events in, ordered lists of them out.

    A list holds at most ``most`` events.
    """

    kind = "batch"

    @property
    def place(self) -> str:
        """Return ``file:line`` where the user wrote the step."""
        return str(getattr(self.function, "place", ""))


def gather(most: int, within_ns: int | None, name: str, place: str) -> BatchEvents[Any]:
    """Return the step; ``within_ns`` is how long an event waits at most, by the clock."""
    on_timer = None if within_ns is None else Callback(_waited)
    timing = Timing(on_timer=on_timer, on_end=Callback(_ended))
    return BatchEvents(_Batching(most, within_ns, place), name, Waiting, STOP, timing)


In = TypeVar("In", contravariant=True)


def _keep(event: Any) -> Any:
    """Stand in for the user's function, which this step does not have."""
    return event


class LatestPerKey(Step, Generic[In]):
    """Events of a batch in, the last one of each key out."""

    kind = "latest per key"
    is_computation = True
    needs_key = True

    def __init__(self, name: str, place: str = ""):
        super().__init__(_keep, name)
        self.used_at = place

    def is_importable(self) -> bool:
        """Return False: the step is created on use."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return LatestPerKey, (self.step_name, self.used_at)
