"""A whole application in one process: inputs in, outputs out."""

from __future__ import annotations

import inspect
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wallaroo.api.application import Application
from wallaroo.connectors.file.sink import WRAPS, FileSinkConfig
from wallaroo.connectors.stdout.sink import StdoutSinkConfig, whole_lines
from wallaroo.dataflow.plan.model import DEAD_LETTERS
from wallaroo.engine.blocks.keys import Key
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.protocols.framing import FrameError, Framing
from wallaroo.sources.failures import VALUE_CHARS, failure_of
from wallaroo.sources.feeds.generator import GenSourceConfig
from wallaroo.steps.losses import DROPPED
from wallaroo.testing.local_runner.runner import BatchResult, Input, LocalRunner, Wire, split_wire

GENERATED_MAX = 10_000  # events read from a generator without an end


@dataclass(slots=True)
class VirtualClock:
    """A clock that a test moves; nanoseconds since the epoch."""

    now_ns: int = 0
    _elapsed_ns: int = field(default=0, init=False, repr=False, compare=False)

    @property
    def has_date(self) -> bool:
        """Return whether the clock was set: one that is only moved forward says 1970."""
        return self.now_ns != self._elapsed_ns

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        try:
            step_ns = int(seconds * 1e9)
            self.now_ns += step_ns
            self._elapsed_ns += step_ns
        except (TypeError, OverflowError):
            fix = "Pass a number, such as the total_seconds() of a timedelta."
            raise _refused("seconds", f"{seconds!r:.60} is not a number.", fix) from None


@dataclass(slots=True)
class LocalRun:
    """A run's encoded outputs by sink name, in sink order.

    ``state(step)``: states by key.

    ``decoded_by_sink`` has the same outputs as the sinks write them: records with value, key,
    partition and headers, a dict for each row of a sink with columns, messages with value and
    address; for other sinks the bytes.
    """

    by_sink: dict[str, list[bytes]]
    events: int
    batches: int
    _runner: LocalRunner = field(repr=False)
    # step -> events skipped, or written as dead letters
    errors: dict[str, int] = field(default_factory=dict)
    # step -> reason -> events that left it without a result: filtered, late, deduplicated, ...
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def outputs(self) -> list[bytes]:
        """Return all outputs of the only sink; of several sinks, the first one's."""
        return next(iter(self.by_sink.values()))

    @property
    def decoded_by_sink(self) -> dict[str, list[Any]]:
        """Return outputs by sink name, decoded."""
        return {name: self._decoded(name, outputs) for name, outputs in self.by_sink.items()}

    @property
    def decoded(self) -> list[Any]:
        """Return all outputs of the only sink, decoded; of several sinks, the first one's."""
        return next(iter(self.decoded_by_sink.values()))

    def _decoded(self, sink: str, outputs: Sequence[bytes]) -> list[Any]:
        config = next(each.config for each in self._runner.plan.sinks if each.name == sink)
        decode: Callable[[Sequence[bytes]], list[Any]] = getattr(config, "decoded_all", list)
        return decode(outputs)

    @property
    def text(self) -> str:
        """Return the only sink's outputs as text, as the sink writes them.

        A StdoutSink and a FileSink with ``form="lines"`` end each with a newline.
        """
        config = self._runner.plan.sinks[0].config
        return b"".join(_as_written(config, self.outputs)).decode()

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """Return dead letters, parsed; for a dead-letter sink without an encoder of its own."""
        if DEAD_LETTERS not in self.by_sink:
            return []
        letters = self._decoded(DEAD_LETTERS, self.by_sink[DEAD_LETTERS])
        return [_letter(letter) for letter in letters]

    def state(self, step: str) -> dict[Key, Any]:
        """Return the state objects of one state step, by key.

        Raises WallarooParameterError if no step with state has that name.
        """
        names = self._runner.plan.state_steps
        if step not in names:
            what = (
                f"no step with state has that name, only {', '.join(map(repr, names)) or 'none'}."
            )
            raise WallarooParameterError(Problem(f"step '{step}'", "", what, "Correct the name."))
        return self._runner.states(step)


def _letter(output: Any) -> dict[str, Any]:
    """Return the dead letter in a decoded output: fields, a message with a value, or a line."""
    letter: dict[str, Any] = (
        output if isinstance(output, dict) else json.loads(getattr(output, "value", output))
    )
    return letter


def _as_written(config: Any, outputs: Sequence[bytes]) -> Sequence[bytes]:
    if isinstance(config, StdoutSinkConfig):
        return whole_lines(outputs)
    if isinstance(config, FileSinkConfig) and config.form == "lines":
        return WRAPS["lines"](outputs)
    return outputs


class LocalApplication:
    """An application that a test drives step by step.

    ``send`` inputs, run a ``batch``, check the outputs.

    ``tasks`` is how many ways a batch is split (as on that many cores); ``clock`` stamps inputs as
    they are sent.
    """

    def __init__(
        self,
        application: Application,
        tasks: int = 2,
        clock: VirtualClock | None = None,
        values_for: Iterable[str] = (),
    ):
        if tasks < 1:
            raise _refused("tasks", f"{tasks} is too few.", "Pass at least 1.")
        _check_application(application)
        self._plan = application.plan
        self._tasks = tasks
        self.clock = clock or VirtualClock()
        self._numbers = {
            source.config.name: number for number, source in enumerate(self._plan.sources)
        }
        values = [values_for] if isinstance(values_for, str) else [*values_for]
        for name in values:
            _check_known(name, self._numbers)
        self._runner = LocalRunner(application.plan, values)
        self._waiting: list[Input] = []
        self._closed: Counter[tuple[int, str]] = Counter()  # how often each partition was closed
        self._watermark_ns: int | None = None
        self._is_ending = False
        self._away: tuple[str, ...] = ()
        self._run = LocalRun({sink.name: [] for sink in self._plan.sinks}, 0, 0, self._runner)

    def send(
        self, source: str, *inputs: Any, partition: str = "", at_ns: int | None = None
    ) -> None:
        """Pass inputs to a source: payloads (bytes), ``Wire`` bytes, or values.

        Values are for the sources in ``values_for``.  Raises WallarooParameterError: there is no
        such source, or it reads bytes and is sent something else.

        ``partition`` is a connection, file or partition of the source; each has a watermark of its
        own.  ``at_ns`` is the time that a Kafka record or a connector's message would have.
        """
        number = self._number_of(source)
        times_ns = None if at_ns is None else (at_ns,)
        partition = self._opened(number, partition)
        receipt_ms = self.clock.now_ns // 1_000_000
        if not (self._plan.source_times[number][1].is_receipt or self.clock.has_date):
            receipt_ms = 0  # unknown: events of today are not far ahead of 1970
        for item in inputs:
            if self._runner.has_payloads(number) and not isinstance(item, bytes | bytearray):
                what = f"{item!r:.60} is not bytes, which its decoder reads."
                fix = f"Send bytes only, or values only (values_for=['{source}'])."
                raise _unusable(source, what, fix)
            frames = self._runner.frames(number, item)
            self._waiting.append(Input(number, frames, receipt_ms, partition, times_ns))

    def close(self, source: str, partition: str = "") -> None:
        """Close a partition, behind the inputs sent so far.

        Nothing more comes from it: it holds time back no longer.  If it is sent something again, it
        is a new one.
        """
        number = self._number_of(source)
        opened = self._opened(number, partition)
        self._waiting.append(Input(number, b"", ended_of=frozenset([opened]).intersection))
        self._closed[number, partition] += 1

    def _opened(self, number: int, partition: str) -> str:
        """Return a partition's name since it was last closed."""
        closed = self._closed[number, partition]
        return f"{partition} ({closed + 1})" if closed else partition

    def _number_of(self, source: str) -> int:
        _check_known(source, self._numbers)
        return self._numbers[source]

    def batch(
        self, events_max: int | None = None, tasks: int | None = None
    ) -> dict[str, list[bytes]]:
        """Process and commit inputs that were sent; return this batch's outputs by sink name.

        At most ``events_max`` of the inputs are processed.
        """
        result = self.attempt(events_max, tasks)
        self._runner.commit(result)
        del self._waiting[: self._end(events_max)]
        outputs = {
            sink.name: result.outputs[number] for number, sink in enumerate(self._plan.sinks)
        }
        for name, some in outputs.items():
            self._run.by_sink[name].extend(some)
        self._run.events += result.events
        for (step, _), count in result.errors.items():
            self._run.errors[step] = self._run.errors.get(step, 0) + count
        self._count_dropped(result)
        self._run.batches += 1
        return outputs

    def _count_dropped(self, result: BatchResult) -> None:
        for (step, reason), count in result.losses.items():
            if reason in DROPPED:
                counts = self._run.dropped.setdefault(step, {})
                counts[reason] = counts.get(reason, 0) + count

    def attempt(self, events_max: int | None = None, tasks: int | None = None) -> BatchResult:
        """Process as if the process died before the commit point; keep nothing."""
        tasks = tasks or self._tasks
        events = self._waiting[: self._end(events_max)]
        share = -(-len(events) // tasks) if events else 1
        pieces = [events[at : at + share] for at in range(0, len(events), share)]
        return self._runner.run_batch(
            pieces,
            tasks,
            self._watermark_ns,
            clock_ns=self.clock.now_ns,
            is_final=self._is_ending and len(events) == len(self._waiting),
            away=self._away,
        )

    def _end(self, events_max: int | None) -> int:
        """Return how many of the waiting inputs, with the closes among them, a batch processes."""
        places = [at for at, each in enumerate(self._waiting) if each.ended_of is None]
        if events_max is None or events_max >= len(places):
            return len(self._waiting)
        return places[events_max]

    def advance_watermark(self, to_ns: int) -> dict[str, list[bytes]]:
        """Move the watermark and process a batch of the inputs sent; return its outputs.

        No event at or before ``to_ns`` is expected after that.
        """
        self._watermark_ns = to_ns
        return self.batch()

    def idle(self, seconds: float) -> dict[str, list[bytes]]:
        """Let time pass without input, then process a batch; return its outputs.

        The sources can be polled all the time, and nothing comes.
        """
        self.clock.advance(seconds)
        return self.batch()

    def outage(self, seconds: float, *sources: str) -> dict[str, list[bytes]]:
        """Let time pass while some sources are unavailable, then process a batch.

        All are unavailable if none is named.  Return the batch's outputs.  Send inputs that waited
        at these sources after this call.
        """
        for source in sources:
            self._number_of(source)
        self.clock.advance(seconds)
        self._away = sources or tuple(self._numbers)
        try:
            return self.batch()
        finally:
            self._away = ()

    def end(self) -> dict[str, list[bytes]]:
        """End all input; return the outputs of this last batch.

        It processes the inputs sent, and calls all timers in event time and the functions for the
        end.
        """
        self._is_ending = True
        outputs = self.batch()
        self._is_ending = False
        return outputs

    @property
    def watermark(self) -> int:
        """Return the watermark after the last batch, in nanoseconds."""
        return self._runner.time.watermark_ns

    @property
    def waiting(self) -> int:
        """Return the number of inputs sent and not yet in a committed batch."""
        return sum(each.ended_of is None for each in self._waiting)

    def result(self) -> LocalRun:
        """Return all outputs so far."""
        return self._run


def run_local(
    application: Application,
    inputs: Mapping[str, Sequence[Any] | bytes] | None = None,
    *,
    batches: int = 1,
    tasks: int = 2,
    limit: int = GENERATED_MAX,
    clock: VirtualClock | None = None,
) -> LocalRun:
    """Run ``application`` on given inputs in this process; return its outputs.

    ``inputs`` by source name: a list of payloads (bytes: the decoder gets each), a list of values
    (anything else: used as decoded events), or ``Wire(...)``, bytes with frame headers.  Sources
    are read in the order given, each completely before the next; after a shuffle, those of one
    batch are in the order of the pipelines.  Generator sources need no inputs: at most ``limit``
    events are requested from them.  When everything is processed, input has ended: windows and
    timers in event time are due.  ``batches``: into how many batches the input is split.  Raises
    UserCodeError if the application's code raises, WallarooParameterError for inputs that are none
    of these, or of no source of the application.
    """
    _check_application(application)
    given = _items(application, {} if inputs is None else inputs, limit)
    values = [name for name, items in given.items() if items and not isinstance(items[0], bytes)]
    running = LocalApplication(application, tasks, clock, values)
    for name, items in given.items():
        running.send(name, *items)
    share = max(1, -(-running.waiting // max(1, batches)))
    while running.waiting > share:
        running.batch(share)
    if application.plan.has_end:
        running.end()
    elif running.waiting:
        running.batch()
    return running.result()


def _items(application: Application, inputs: Any, limit: int) -> dict[str, list[Any]]:
    items: dict[str, list[Any]] = {}
    configs = {source.config.name: source.config for source in application.plan.sources}
    if not isinstance(inputs, Mapping):
        what = f"run_local() was passed {inputs!r:.60}, not inputs by the name of their source."
        raise _unusable(next(iter(configs)), what, "Pass a dict: {source: inputs}.")
    for name, values in inputs.items():
        _check_known(name, configs)
        if isinstance(values, bytes):
            items[name] = _split(name, values, configs[name].wire_framing)
        elif isinstance(values, str) or not isinstance(values, Iterable):
            raise _unusable(name, f"{values!r:.60} is not a list of inputs.", "Pass a list.")
        else:
            items[name] = list(values)
    for name, config in configs.items():
        if name not in items and isinstance(config, GenSourceConfig):
            items[name] = list(_generated(name, config.gen_instance, limit))
    return items


def _split(source: str, wire: bytes, framing: Framing) -> list[Any]:
    try:
        return [Wire(frame) for frame in split_wire(wire, framing)]
    except FrameError as error:
        what = f"{wire!r:.60} is not what a connection carries: {error}."
        raise _unusable(source, what, "Pass a list of payloads: [payload].") from None


def _check_application(application: Any) -> None:
    if not isinstance(application, Application):
        is_setup = inspect.isfunction(application)
        what = f"{application!r:.60} is not an application."
        raise _refused(
            "application",
            what,
            f"Pass what {application.__name__}([]) returns."
            if is_setup
            else "Pass what build_application(...) returns.",
        )


def _check_known(source: str, known: Iterable[str]) -> None:
    if source not in known:
        names = ", ".join(map(repr, known))
        raise _unusable(source, f"there is no such source, only {names}.", "Correct the name.")


def _unusable(source: str, what: str, fix: str) -> WallarooParameterError:
    return _refused(f"source '{source}'", what, fix)


def _refused(argument: str, what: str, fix: str) -> WallarooParameterError:
    return WallarooParameterError(Problem(argument, "", what, fix))


def _generated(source: str, generator: Any, limit: int) -> Iterator[Any]:
    """Yield a generator's values as they are when it returns them, as its feeder pickles them."""
    value: Any = None
    for number in range(limit):
        before = f"after {value!r:.{VALUE_CHARS}}" if number else "the first"
        try:
            value = generator.apply(value) if number else generator.initial_value()
            emitted = pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        except Exception as error:  # noqa: BLE001  # the boundary to the user's generator
            raise failure_of(source, error, before) from None
        if emitted is None:
            return
        yield emitted
