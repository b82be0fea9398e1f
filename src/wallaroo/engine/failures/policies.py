"""Error policies for user functions: stop, skip the event, or dead letter.

Where it runs: pure.  The policy is chosen when a stage is built; the per-event path only has a
``try``, which is free unless it fires.

Under every policy, the failed call has no output.  A state object keeps changes made before the
function raised, as in plain Python. A failure that is not about one event always stops the run: a
state class that cannot be instantiated, stored or loaded, a PeerError (for example, an unavailable
schema server), and any non-``Exception``, such as sys.exit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wallaroo.engine.failures.dead_letters import Letter, letter_of
from wallaroo.engine.failures.error_context import (
    blame,
    describe,
    shorten,
    show_frame,
    with_details,
)
from wallaroo.engine.failures.reading import Reading
from wallaroo.errors import PeerError, UserCodeError, printable
from wallaroo.steps.kinds import DEAD_LETTER, STOP, Step
from wallaroo.user_code.pickling_diagnosis import unpicklable_part

SAMPLES_FIRST = 5  # failures of a step in a task that are all shown; then every power of ten is

# event, exception, key (None if there is none)
OnError = Callable[[Any, BaseException, Any], None]
Facts = Callable[[], Mapping[str, Any]]  # about the source's current record
Tally = dict[tuple[str, str], int]  # (step name, policy) -> events that failed


def no_facts() -> Mapping[str, Any]:
    """Return no facts: the event was not read from a source here."""
    return {}


@dataclass(frozen=True, slots=True)
class Sample:
    """A failure that did not stop the run, for display."""

    step: str
    policy: str
    place: str
    event: str
    cause: str
    number: int  # ordinal of this failure among those of the step in its task and batch


class Failures:
    """Policies of one task in one batch.

    ``counts`` and ``samples`` report the failures that did not stop the run.  ``write`` accepts
    dead letters; it is None if the plan has no dead-letter sink; the checks ensure that no step
    then asks for one.
    """

    def __init__(self, application: str, batch: int, write: Callable[[Letter], None] | None):
        self.counts: Tally = {}
        self.samples: list[Sample] = []
        self.reading = Reading()
        self._application = application
        self._batch = batch
        self._write = write

    def policy(self, step: Step, source: str = "") -> OnError:
        """Return the handler of events for which ``step`` raised; ``source``: if known."""
        facts = self.reading.facts if source else no_facts
        if step.on_error == STOP:
            return stop_on_error(step, facts)
        if step.on_error == DEAD_LETTER and self._write is not None:
            return self._dead_letter(step, source, facts, self._write)
        return self._skip(step, facts)

    def _skip(self, step: Step, facts: Facts) -> OnError:
        def failed(event: Any, error: BaseException, key: Any) -> None:
            self._count(step, event, error, key, facts())

        return failed

    def _dead_letter(
        self, step: Step, source: str, facts: Facts, write: Callable[[Letter], None]
    ) -> OnError:
        def failed(event: Any, error: BaseException, key: Any) -> None:
            record = facts()
            self._count(step, event, error, key, record)
            letter = letter_of(
                self._application, self._batch, step, source, key, event, error, record
            )
            write(letter)

        return failed

    def _count(
        self, step: Step, event: Any, error: BaseException, key: Any, record: Mapping[str, Any]
    ) -> None:
        if isinstance(error, PeerError):
            raise _of(step, error)
        if isinstance(error, UserCodeError):
            raise error  # what the step has stored cannot be read
        text = with_details(show(step, event), error, key, record)
        if not isinstance(error, Exception):
            blame(step, text, error)
        counted = step.step_name, step.on_error
        number = self.counts[counted] = self.counts.get(counted, 0) + 1
        if number <= SAMPLES_FIRST or str(number).rstrip("0") == "1":
            found = describe(step, text, error)
            cause = printable(found.cause)
            self.samples.append(
                Sample(found.step, step.on_error, found.place, found.event, cause, number)
            )


def show(step: Step, event: Any) -> str:
    """Return a short text for the input of ``step``: a frame in hex, or a repr."""
    # unless its event cannot be packed
    is_frame = step.kind == "decoder" and isinstance(event, bytes)
    return show_frame(event) if is_frame else shorten(event)


def stop_on_error(step: Step, facts: Facts = no_facts) -> OnError:
    """Return the default policy: raise; the batch does not commit."""

    def failed(event: Any, error: BaseException, key: Any = None) -> None:
        if isinstance(error, PeerError):
            raise _of(step, error)
        if isinstance(error, UserCodeError):
            raise error
        blame(step, with_details(show(step, event), error, key, facts()), error)

    return failed


def noting_unpicklable(failed: OnError) -> OnError:
    """Return the handler of events that cannot be packed, which records why."""

    def not_packed(event: Any, error: BaseException, key: Any) -> None:
        part = unpicklable_part(event, pickle.dumps)
        error.add_note(
            f"it cannot be sent to another worker{': ' if part else ''}{part}; keep only picklable "
            f"values in events, and define their classes at the top level of a module"
        )
        failed(event, error, key)

    return not_packed


def _of(step: Step, error: PeerError) -> PeerError:
    """Return the error with the step that it comes from."""
    named = PeerError(f"{step.kind} '{step.step_name}': {error}")
    named.__cause__ = error
    return named
