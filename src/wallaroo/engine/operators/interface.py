"""What an operator is, and what it is built from.

Where it runs: pure (in workers).

An operator is one step of a stage at work.  A stage's operators are built from its exit back, so
that each knows the ``emit`` of the next one when it is built; an event then runs through all of
them as nested calls.  This is the per-event path: what does not depend on the event is decided when
the operator is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wallaroo.engine.failures import OnError
from wallaroo.engine.keyed_state import KeyedState
from wallaroo.steps import Step

Emit = Callable[[Any, Any], None]  # key (None where there is none), event


class StageTime:
    """The time of the event that a stage is processing, and the stage's watermark; unix ms.

    None in a pipeline without event time.  Heads set ``event_ms`` where blocks carry times.
    """

    __slots__ = ("event_ms", "watermark_ms")

    def __init__(self) -> None:
        self.event_ms: int | None = None
        self.watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """Where an operator is built: what comes after it, and what it has to work with."""

    emit: Emit
    failed: OnError
    state_of: Callable[[Step], KeyedState]
    time: StageTime


@dataclass(frozen=True, slots=True)
class Operator:
    """``process`` takes each event.  ``advance`` is called when the watermark has moved, ``flush``
    when the batch has no more input; both may emit, and are not called where they are None.
    """

    process: Emit
    advance: Callable[[int], None] | None = None
    flush: Callable[[], None] | None = None


Build = Callable[[Any, Site], Operator]  # a step of the operator's kind, and its site
