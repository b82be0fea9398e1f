"""The steps of joins, ``dedupe`` and ``in_order`` in a pipeline.

A join is a merge of two keyed pipelines whose events carry their side: pairs of a side, ``LEFT`` or
``RIGHT``, and the event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from wallaroo.steps.kinds import STOP, Callback, Computation, Step
from wallaroo.steps.windows.panes import Grid
from wallaroo.steps.windows.spec import RangeWindowSpec
from wallaroo.steps.windows.step import Aggregated

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)

LEFT = 0
RIGHT = 1
INNER = "inner"
OUTER = "outer"
# for each way to join, the sides whose events have results without a partner
HOW: dict[str, tuple[int, ...]] = {
    INNER: (),
    "left": (LEFT,),
    "right": (RIGHT,),
    OUTER: (LEFT, RIGHT),
}
HOW_LATEST = (INNER, "left")
ORDER = "in order for "  # prefix of a step whose events are ordered first


def from_left(event: Any) -> tuple[int, Any]:
    """Mark an event as one of the left side."""
    return LEFT, event


def from_right(event: Any) -> tuple[int, Any]:
    """Mark an event as one of the right side."""
    return RIGHT, event


class Side(Computation[Any, tuple[int, Any]]):
    """Step that marks events with their side."""

    def __init__(self, function: Callable[..., Any], name: str, on_error: str = STOP):
        super().__init__(function, name, on_error)
        self.side = LEFT if function is from_left else RIGHT


LEFT_SIDE = Side(from_left, "left side")
RIGHT_SIDE = Side(from_right, "right side")


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    """Return the result of a join without a function."""
    return left, right


def whole_event(event: Any) -> None:
    """Return None: without ``by``, nothing distinguishes the events of a key."""
    return


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Conditions for matching two sides, or an event and earlier ones.

    Spans are in ns.
    """

    within_ns: int | None
    how: str = INNER
    is_open: bool = False  # whether all events of a key meet, if there is no ``ttl_ns``
    ttl_ns: int | None = None
    until: Callback | None = None  # returns the last time of right events that a left one meets
    over: Aggregated | None = None  # aggregates the right events that a left one meets


@dataclass(frozen=True, slots=True)
class WindowJoinSpec:
    """Conditions on which two sides meet in windows."""

    windows: RangeWindowSpec
    how: str = INNER


@dataclass(frozen=True, slots=True)
class OrderSpec:
    """An order of events."""

    takes_late: bool = False  # late events are emitted in their turn, not dropped


class Matching(Step):
    """The common base of joins, ``dedupe`` and ``in_order``."""

    is_computation = True
    is_stateful = True
    keeps_entries = True
    acts_at_end = True
    state_class: ClassVar[type[Any]] = dict
    spec: Any

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        on_error: str = STOP,
        spec: Any = JoinSpec(0),
        place: str = "",
        gives_late: bool = False,
    ):
        super().__init__(function, name, on_error)
        self.spec = spec
        self.used_at = place
        self.gives_late = gives_late
        self.arity = self.arities[0]

    def options(self) -> tuple[Any, ...]:
        return (self.step_name, self.on_error, self.spec, self.used_at, self.gives_late)

    def giving_late(self) -> Self:
        """Return the same step, which emits late events as well (``windows.late``)."""
        options = (*self.options()[:-1], True)
        return type(self)(self.function, *options)


class IntervalJoin(Matching, Generic[Out]):
    """Join of events of two sides at most a span apart."""

    kind = "interval join"
    example = "def {name}(left, right): ..."
    arities = (2,)
    spec: JoinSpec


class IntervalRowJoin(IntervalJoin[Out]):
    """A block-wise join of rows at most a span apart; see ``LatestRowJoin``."""

    kind = "interval join of rows"
    takes_blocks = True


class OpenJoin(IntervalJoin[Out]):
    """A join of all events, or of those within a TTL."""

    kind = "open join"


class JoinUntil(IntervalJoin[Out]):
    """A join of left events with right ones until a named time."""

    kind = "join until"


class LatestJoin(Matching, Generic[Out]):
    """Join of left events with the right side's newest at their time."""

    kind = "latest join"
    example = "def {name}(left, right): ..."
    arities = (2,)


class LatestRowJoin(LatestJoin[Out]):
    """Join of left rows with the right side's newest, block by block.

    The planner substitutes it for a ``LatestJoin`` of rows whose function is ``WithColumns``
    (``ROW_JOINS``).
    """

    kind = "latest join of rows"
    takes_blocks = True


# joins of events, and of rows by the block
ROW_JOINS: dict[type[Step], type[Matching]] = {
    IntervalJoin: IntervalRowJoin,
    LatestJoin: LatestRowJoin,
}


class WindowJoin(Matching, Generic[Out]):
    """Join of events of two sides that are in one window."""

    kind = "window join"
    example = "def {name}(left, right): ..."
    arities = (2,)
    spec: WindowJoinSpec

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        on_error: str,
        spec: WindowJoinSpec,
        place: str = "",
        gives_late: bool = False,
    ):
        super().__init__(function, name, on_error, spec, place, gives_late)
        windows = self.spec.windows
        self.kept_for = windows
        # the build rejects other slides
        self.watermark_lag_ns = Grid.of(windows).delay if windows.slide_ns > 0 else 0


class Dedupe(Matching, Generic[In]):
    """Filter of events that repeat an earlier one within a span."""

    kind = "dedupe"


class InOrder(Matching, Generic[In]):
    """Order of a key's events by time.

    Each is emitted when the watermark has passed it.
    """

    kind = "in order"
    example = "def {name}(event): ..."
    arities = (1,)
    spec: OrderSpec


def order_before(step: Step) -> InOrder[Any]:
    """Return the step that orders events before an event-time step, late ones in their turn."""
    name = f"{ORDER}{step.step_name}"
    return InOrder(whole_event, name, STOP, OrderSpec(takes_late=True), step.place)
