"""Operators, and the sites that they are built at.

An operator executes one step of a stage.  A stage's operators are built from its exit back, so that
each knows the ``emit`` of the next one when it is built; an event then runs through all of them as
nested calls.  This is the per-event path: everything independent of the event is decided when the
operator is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.operator_state import OperatorState
from wallaroo.engine.time.stage_time import StageTime, lagged
from wallaroo.steps.kinds import Step
from wallaroo.steps.losses import CellOf, uncounted

Emit = Callable[[Any, Any], None]  # key (None if there is none), event


def no_store(step: Step) -> OperatorState:
    """Raise KeyError: the step keeps no entries."""
    raise KeyError(f"'{step.step_name}' keeps no ordered entries (Step.keeps_entries)")


def no_keys(step: Step) -> Iterable[Key]:
    """Return no keys: nothing was committed."""
    return ()


@dataclass(frozen=True, slots=True)
class Site:
    """Place at which an operator is built.

    It has the next one's ``emit``, and its resources.
    """

    emit: Emit
    failed: OnError
    state_of: Callable[[Step], KeyedState]
    time: StageTime
    store_of: Callable[[Step], OperatorState] = no_store  # only for a step that ``keeps_entries``
    # the keys for which a step has committed state, to process them when all input has ended
    keys_of: Callable[[Step], Iterable[Key]] = no_keys
    rejected: OnError | None = None  # accepts events that a source should not have sent
    # delay of the step's watermark behind its stage's: the sum of earlier steps' delays
    watermark_lag_ns: int = 0
    lost: CellOf = uncounted  # counts of the events that leave the step without a result

    @property
    def began_ns(self) -> int:
        """Return the step's watermark when the batch began."""
        return lagged(self.time.began_ns, self.watermark_lag_ns)

    @property
    def reached_ns(self) -> int:
        """Return the step's watermark when the batch has no more input."""
        return lagged(self.time.reached_ns, self.watermark_lag_ns)


@dataclass(frozen=True, slots=True)
class Operator:
    """One executing step of a stage.

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


class Relay:
    """Exit of an operator that holds events back; sampling redirects it.

    Only the operators of a batch that is sampled have one: all others call the next step directly.
    """

    __slots__ = ("_measured", "emit", "plain")

    def __init__(self, plain: Emit):
        self.emit = self.plain = self._measured = plain

    def process(self, key: Any, event: Any) -> None:
        self.emit(key, event)

    def turn(self, measured: Emit) -> None:
        """Switch to the steps of an instrumented copy."""
        self.emit = self._measured = measured

    def turn_back(self) -> None:
        """Switch to the unmeasured steps."""
        self.emit = self.plain

    def turn_again(self) -> Emit:
        """Switch back to the last instrumented copy's steps; return the first of them."""
        self.emit = self._measured
        return self._measured


Build = Callable[[Any, Site], Operator]  # arguments: a step of the operator's kind, and its site
