"""Operators, and the sites that they are built at.

Where it runs: pure (in workers).

An operator is one step of a stage at work.  A stage's operators are built from its exit back, so
that each knows the ``emit`` of the next one when it is built; an event then runs through all of
them as nested calls.  This is the per-event path: what does not depend on the event is decided when
the operator is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from wallaroo.engine.failures import OnError
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.engine.keys import Key
from wallaroo.engine.ordered_keys import TIME_MAX, TIME_MIN
from wallaroo.engine.step_store import StepStore
from wallaroo.steps import Step

Emit = Callable[[Any, Any], None]  # key (None if there is none), event


class StageTime:
    """The current time of a stage, unix time in nanoseconds.

    While an event is processed: ``event_ns`` is the event's time, ``watermark_ns`` the watermark of
    its source partition just before it.  An event is late for what ended at or before that
    watermark: this alone decides about lateness, since it does not depend on how the input was cut
    into batches.

    While ``Operator.advance`` runs, ``watermark_ns`` is the stage's watermark.  An operator calls
    ``fire_at`` before it emits what was due.

    ``clock_ns`` is the batch's one reading of the clock; a repeated batch has the same one, and the
    same number, ``batch``.
    """

    __slots__ = (
        "batch",
        "began_ns",
        "clock_ns",
        "elapsed_ns",
        "event_ns",
        "latest_ns",
        "passed_ns",
        "payload",
        "reached_ns",
        "receipt_ns",
        "watermark_ns",
    )

    def __init__(
        self,
        clock_ns: int = 0,
        began_ns: int = TIME_MIN,
        batch: int = -1,
        elapsed_ns: int = 0,
    ) -> None:
        self.batch = batch
        self.elapsed_ns = elapsed_ns  # by the clock, since the batch before
        self.began_ns = began_ns  # the stage's watermark when the batch began
        self.reached_ns = TIME_MIN  # the watermark after the batch's input; set once that has ended
        self.event_ns: int = TIME_MIN
        self.watermark_ns: int = TIME_MIN
        self.clock_ns = clock_ns
        # only in a stage that reads a source: the source's watermark so far, and when the current
        # event was received
        self.passed_ns: int = TIME_MIN
        self.receipt_ns: int = TIME_MAX
        self.latest_ns: int = TIME_MAX  # the latest time such an event may have (``max_ahead``)
        self.payload: Any = None  # the payload of the event, if that travels

    def fire_at(self, time_ns: int, added_at_ns: int = TIME_MIN) -> None:
        """Set the time of events emitted from here on to that of something due.

        It is as if the watermark were just about to pass it.  ``added_at_ns``: ``Due.added_at_ns``.
        """
        self.event_ns = time_ns
        self.watermark_ns = max(time_ns - 1, added_at_ns)


def behind(watermark_ns: int, hold_ns: int) -> int:
    """Return a watermark that is held back, unless nothing was observed yet, or input has ended."""
    if watermark_ns in (TIME_MIN, TIME_MAX):
        return watermark_ns
    return watermark_ns - hold_ns


def no_store(step: Step) -> StepStore:
    """Raise KeyError: the step keeps no entries."""
    raise KeyError(f"'{step.step_name}' keeps no ordered entries (Step.keeps_entries)")


def no_keys(step: Step) -> Iterable[Key]:
    """Return no keys: nothing was committed."""
    return ()


@dataclass(frozen=True, slots=True)
class Site:
    """Place at which an operator is built.

    It has the next operator's ``emit``, and all that the operator works with.
    """

    emit: Emit
    failed: OnError
    state_of: Callable[[Step], KeyedState]
    time: StageTime
    store_of: Callable[[Step], StepStore] = no_store  # only for a step that ``keeps_entries``
    # the keys for which a step has committed state, to process them when all input has ended
    keys_of: Callable[[Step], Iterable[Key]] = no_keys
    rejected: OnError | None = None  # accepts events that a source should not have sent
    # delay of the step's watermark behind its stage's: the delays of the steps before it
    hold_ns: int = 0

    @property
    def began_ns(self) -> int:
        """Return the step's watermark when the batch began."""
        return behind(self.time.began_ns, self.hold_ns)

    @property
    def reached_ns(self) -> int:
        """Return the step's watermark when the batch has no more input."""
        return behind(self.time.reached_ns, self.hold_ns)


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of a stage at work.

    ``process`` accepts each event.  When the batch has no more input, ``advance`` is called with
    the stage's watermark (``TIME_MAX`` if all input has ended), then ``end`` if all input has
    ended, then ``flush``.  All may emit, and are not called if they are None.  ``merge`` accepts
    accumulators of producers (``engine.adding_up``), ``sided`` the events of each side of a join.
    """

    process: Emit
    advance: Callable[[int], None] | None = None
    flush: Callable[[], None] | None = None
    end: Callable[[], None] | None = None
    merge: Emit | None = None
    sided: tuple[Emit, ...] = ()


Build = Callable[[Any, Site], Operator]  # a step of the operator's kind, and its site
