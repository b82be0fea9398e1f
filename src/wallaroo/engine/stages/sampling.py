"""Timing of the steps of a stage on a few events.

An instrumented copy of the stage is built for one sample; its steps are wrapped in clock readings.

The stage that processes all other events has no clock and does not depend on this module.  The
instrumented copy feeds the same exchanges, state objects and sinks, so a sampled event is processed
like any other.  An operator that holds events back until the watermark moves exists once: the copy
shares it, and redirects its exit (``Relay``) to the measured steps after it.  If it emits as the
watermark advances, the first events are measured, and scaled to all by elapsed time. Such operators
have a relay only in sampled batches.  A stage that collects rows until the batch ends has no copy.
The branches of a stage have copies of their own; those without one are measured as a whole, their
time attributed to no step.  Time is split as follows: a step's function calls the next step's, so a
wrapper measures everything downstream as well; the difference of two neighbours is the step's own
time.  The cost of the wrappers themselves is measured on an empty function and subtracted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wallaroo.dataflow.plan.model import (
    ExchangeEntry,
    Plan,
    SourceEntry,
    Stage,
    ToExchange,
    ToSinks,
    last_step_of,
)
from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.engine.failures.error_context import shorten
from wallaroo.engine.operators.interface import Emit, Relay

EVENTS_MAX = 256  # per sample: at a microsecond or two of overhead each, half a millisecond
KEYS_LISTED = 32  # most frequent keys of a sample
KEY_CHARS_MAX = 80
_CALIBRATION_CALLS = 64

Clock = Callable[[], int]  # nanoseconds


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step in one sample: its number of events, its own time."""

    step: str
    events: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class StageSample:
    stage: int
    events: int  # fed to the stage, or to the one whose branch it is
    steps: tuple[StepSample, ...] = ()  # the head of the stage first, its exit last
    keys: tuple[tuple[str, int], ...] = ()  # the most frequent ones
    other_keys: int = 0  # events whose keys are not listed
    groups: dict[int, int] = field(default_factory=dict)  # key group -> events
    # the keys that took the most time in the stage's steps, in nanoseconds
    slow_keys: tuple[tuple[str, int], ...] = ()
    other_ns: int = 0  # time of keys that are not listed
    fed: int = -1  # for a branch, the stage that was fed

    @property
    def head(self) -> int:
        """Return the stage that was fed."""
        return self.stage if self.fed < 0 else self.fed


class StageTimer:
    """Timing wrappers of one copy's operators; ``is_whole``: without a copy."""

    def __init__(
        self, plan: Plan, stage: Stage, origin: int | None, clock: Clock, is_whole: bool = False
    ):
        self._plan = plan
        self._stage = stage
        self._clock = clock
        self._names = _names(plan, stage, origin)
        self._calls = [0] * (len(stage.steps) + 1)
        self._inclusive_ns = [0] * (len(stage.steps) + 1)
        self._key_ns: dict[Any, int] = {}
        self._is_whole = is_whole
        self._branches: list[StageTimer] = []
        self._overhead_ns = 0.0  # per wrapper

    def of_branch(self, stage: Stage, is_whole: bool) -> StageTimer:
        """Return the timer of one of the stage's branches."""
        timer = StageTimer(self._plan, stage, None, self._clock, is_whole)
        self._branches.append(timer)
        return timer

    def around(self, emit: Emit, place: int) -> Emit:
        """Measure an operator, or the output (the place after the last one)."""
        if place == 0 and isinstance(self._stage.entry, ExchangeEntry):
            return self._around_first(emit)
        clock = self._clock
        calls = self._calls
        inclusive_ns = self._inclusive_ns

        def timed(key: Any, event: Any) -> None:
            began = clock()
            emit(key, event)
            inclusive_ns[place] += clock() - began
            calls[place] += 1

        return timed

    def _around_first(self, emit: Emit) -> Emit:
        """Measure the first operator after a shuffle, also by key."""
        clock = self._clock
        calls = self._calls
        inclusive_ns = self._inclusive_ns
        key_ns = self._key_ns

        def timed(key: Any, event: Any) -> None:
            began = clock()
            emit(key, event)
            took_ns = clock() - began
            inclusive_ns[0] += took_ns
            calls[0] += 1
            key_ns[key] = key_ns.get(key, 0) + took_ns

        return timed

    def measure(
        self, run: Callable[[], None], events: int, keys: Sequence[Any]
    ) -> tuple[StageSample, ...]:
        """Run the instrumented copy's head over ``events`` events; return the samples.

        ``keys`` are the events' keys, if any. There is a sample of the stage, and of each branch
        with an instrumented copy.
        """
        self._calibrate()
        began = self._clock()
        run()
        took_ns = self._clock() - began
        counted = Counter(keys)
        listed = counted.most_common(KEYS_LISTED)
        slow = Counter(self._key_ns).most_common(KEYS_LISTED)
        sample = StageSample(
            self._stage.id,
            events,
            self._steps(took_ns, events),
            tuple((key_text(key), count) for key, count in listed),
            len(keys) - sum(count for _, count in listed),
            self._groups(counted),
            tuple((key_text(key), took_ns) for key, took_ns in slow),
            sum(self._key_ns.values()) - sum(took_ns for _, took_ns in slow),
        )
        return (sample, *self._samples_of_branches(self._stage.id, events))

    def measure_end(
        self, place: int, relays: Mapping[int, Relay], advance: Callable[[], None]
    ) -> tuple[StageSample, ...]:
        """Advance an operator, measuring the first events that it emits; return samples.

        There is one of the stage, and one of each branch with an instrumented copy.
        """
        self._calibrate()
        exits = _MeasuredExits(relays, place, self._clock)
        began = self._clock()
        advance()
        ended = self._clock()
        times = exits.times_measured(ended)
        took_ns = round((ended - began) / times)
        self._inclusive_ns[: place + 1] = [took_ns] * (place + 1)
        samples = [StageSample(self._stage.id, 0, self._steps(took_ns, 0))]
        samples += self._samples_of_branches(self._stage.id, 0)
        return tuple(_at_end(sample, times) for sample in samples)

    def _samples_of_branches(self, fed: int, events: int) -> Iterator[StageSample]:
        for branch in self._branches:
            if branch._calls[0] and not branch._is_whole:
                steps = branch._steps(branch._inclusive_ns[0], branch._calls[0])
                yield StageSample(branch._stage.id, events, steps, fed=fed)
            yield from branch._samples_of_branches(fed, events)

    def _steps(self, took_ns: int, events: int) -> tuple[StepSample, ...]:
        """Return each step's own time: its wrapper's minus that of the steps after it."""
        branches_ns = sum(branch._inclusive_ns[0] for branch in self._branches)
        branches_calls = sum(branch._calls[0] for branch in self._branches)
        inclusive_ns = [took_ns, *self._inclusive_ns, branches_ns]
        calls = [events, *self._calls, branches_calls]
        return tuple(
            StepSample(
                name,
                calls[place],
                max(
                    0,
                    inclusive_ns[place]
                    - inclusive_ns[place + 1]
                    - round(self._overhead_ns * calls[place + 1]),
                ),
            )
            for place, name in enumerate(self._names)
        )

    def _groups(self, keys: Counter[Any]) -> dict[int, int]:
        groups: Counter[int] = Counter()
        for key, count in keys.items():
            groups[group_of(encode_key(key), self._plan.key_groups)] += count
        return dict(groups)

    def _calibrate(self) -> None:
        """Measure the time that one wrapper adds to its caller, beyond what it measures itself."""
        place = len(self._calls) - 1
        empty = self.around(_nothing, place)
        began = self._clock()
        for _ in range(_CALIBRATION_CALLS):
            empty(None, None)
        seen_ns = self._clock() - began
        self._overhead_ns = max(0.0, (seen_ns - self._inclusive_ns[place]) / _CALIBRATION_CALLS)
        self._calls[:] = [0] * len(self._calls)
        self._inclusive_ns[:] = [0] * len(self._inclusive_ns)
        self._key_ns.clear()
        for branch in self._branches:
            branch._calibrate()


class _MeasuredExits:
    """Relays of a stage that use an instrumented copy for a while.

    They use it until ``place`` has emitted enough.
    """

    def __init__(self, relays: Mapping[int, Relay], place: int, clock: Clock):
        self._relays = relays
        self._clock = clock
        self._seen = 0
        self._first_ns = 0
        self._last_ns = 0
        measured = {number: relay.turn_again() for number, relay in relays.items()}
        relays[place].emit = self._counting(measured[place])

    def _counting(self, measured: Emit) -> Emit:
        def counted(key: Any, event: Any) -> None:
            if not self._seen:
                self._first_ns = self._clock()
            self._seen += 1
            measured(key, event)
            if self._seen == EVENTS_MAX:
                self._last_ns = self._clock()
                for relay in self._relays.values():
                    relay.turn_back()

        return counted

    def times_measured(self, ended_ns: int) -> float:
        """Return the ratio of all events to measured ones, by the time they took."""
        measured_ns = self._last_ns - self._first_ns
        if self._seen < EVENTS_MAX or measured_ns <= 0:
            return 1.0
        return (ended_ns - self._first_ns) / measured_ns


def _at_end(sample: StageSample, times: float) -> StageSample:
    steps = tuple(
        replace(
            step, events=round(step.events * times), nanoseconds=round(step.nanoseconds * times)
        )
        for step in sample.steps
    )
    return replace(sample, events=0, steps=steps)


def key_text(key: Any) -> str:
    """Return a key in readable form, shortened."""
    return key[:KEY_CHARS_MAX] if isinstance(key, str) else shorten(key)


def _nothing(key: Any, event: Any) -> None:
    pass


def _names(plan: Plan, stage: Stage, origin: int | None) -> tuple[str, ...]:
    """Return the names of the measured parts; an undecoded frame leaves without another call."""
    head = _head_name(plan, stage, origin)
    if isinstance(stage.exit, ToExchange) and stage.exit.is_raw and not stage.steps:
        return (head,)
    return (head, *(step.step_name for step in stage.steps), _exit_name(plan, stage))


def _head_name(plan: Plan, stage: Stage, origin: int | None) -> str:
    if isinstance(stage.entry, SourceEntry):
        return plan.sources[stage.entry.source].decoder.step_name
    if not isinstance(stage.entry, ExchangeEntry):
        return "branch"
    producer = plan.stages[origin] if origin is not None else stage
    is_raw = isinstance(producer.exit, ToExchange) and producer.exit.is_raw
    if is_raw and isinstance(producer.entry, SourceEntry):
        return plan.sources[producer.entry.source].decoder.step_name
    return "receive"


def _exit_name(plan: Plan, stage: Stage) -> str:
    if isinstance(stage.exit, ToSinks):
        encoder = plan.sinks[stage.exit.sinks[0]].encoder
        return encoder.step_name if encoder else "write"
    last = last_step_of(stage)
    if last is not None:
        return last.step_name
    return "shuffle" if isinstance(stage.exit, ToExchange) else "branch"
