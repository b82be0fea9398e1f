"""``ApplicationBuilder``: an application as Wallaroo built it in 2017.

Where it runs: driver, while an application is built.

Pipelines that name the same state share its objects.  In today's API a state belongs to one step;
so pipelines that share a state become one stream from that step on, whose events carry the number
of their pipeline.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from wallaroo.api.application import Application, build_application
from wallaroo.api.decorated import OfClass, OldStateComputation, OldStateComputationMulti
from wallaroo.api.pipeline import Pipeline, source
from wallaroo.compat.classic import functions
from wallaroo.compat.classic.built import Built
from wallaroo.compat.classic.codecs import with_encoder, with_name, wrong
from wallaroo.sinks.wrapped_encoder import WrappedEncoder
from wallaroo.steps import kinds

_OF_2018 = (OldStateComputation, OldStateComputationMulti)


@dataclass(frozen=True, slots=True)
class _Stateless:
    """A computation."""

    computation: Any


@dataclass(frozen=True, slots=True)
class _Stateful:
    """A computation on a state that may be shared; ``keys`` None: any."""

    computation: Any
    builder: Any
    state: str
    partition: Callable[[Any], Any]
    keys: frozenset[Any] | None


@dataclass(slots=True, eq=False)
class _Line:
    """One pipeline as written."""

    name: str
    config: Any
    steps: list[_Stateless | _Stateful] = field(default_factory=list)
    sinks: list[Any] = field(default_factory=list)
    is_closed: bool = False

    def states(self) -> list[str]:
        return [step.state for step in self.steps if isinstance(step, _Stateful)]


@dataclass(slots=True, eq=False)
class _Stream:
    """Pipelines that run together, with the number of steps done of each."""

    pipeline: Pipeline[Any]
    done: dict[int, int]


class ApplicationBuilder:
    """Builder of pipelines, one after the other.

    Every method but ``build`` returns the builder.  Steps of the decorators of 2018 are accepted in
    place of classes and instances of 2017: a computation in ``to`` and ``to_parallel``, a state
    computation without a state, the state's class in place of its builder, a partition function.
    """

    def __init__(self, name: str):
        self._name = name
        self._lines: list[_Line] = []

    def new_pipeline(self, name: str, source_config: Any) -> Self:
        """Begin a pipeline."""
        self._lines.append(_Line(name, with_name(source_config, name)))
        return self

    def to(self, computation: type[Any]) -> Self:
        """Add a computation, given as a class.  Attributes that it sets are not kept."""
        self._open("to").steps.append(_Stateless(self._made("to", computation)))
        return self

    def to_parallel(self, computation: type[Any]) -> Self:
        """Add a computation, given as a class, as `to` does."""
        self._open("to_parallel").steps.append(_Stateless(self._made("to_parallel", computation)))
        return self

    def to_stateful(self, computation: Any, state_builder: Any, state_name: str) -> Self:
        """Add a computation on one state object for all events."""
        self._check_instances("to_stateful", computation, state_builder)
        builder = _builder(state_builder)
        step = _Stateful(computation, builder, state_name, lambda _: "", None)
        self._open("to_stateful").steps.append(step)
        return self

    def to_state_partition(
        self,
        computation: Any,
        state_builder: Any,
        state_name: str,
        partition_function: Any,
        partition_keys: list[Hashable] | None = None,
    ) -> Self:
        """Add a computation on a state object per key.

        If ``partition_keys`` are given, an event whose key is not among them is dropped, and
        counted as filtered.
        """
        self._check_instances("to_state_partition", computation, state_builder)
        if partition_keys is not None and not isinstance(partition_keys, list):
            raise wrong(
                "to_state_partition()",
                f"Expecting a partition_keys list. Got a {type(partition_keys)} instead.",
            )
        step = _Stateful(
            computation,
            _builder(state_builder),
            state_name,
            partition_function.partition,
            _distinct(partition_keys or []),
        )
        self._open("to_state_partition").steps.append(step)
        return self

    def to_state_partition_u64(
        self,
        computation: Any,
        state_builder: Any,
        state_name: str,
        partition_function: Any,
        partition_keys: Iterable[int],
    ) -> Self:
        """Add a computation as `to_state_partition` does, with keys that are whole numbers."""
        return self.to_state_partition(
            computation, state_builder, state_name, partition_function, list(partition_keys)
        )

    def to_sink(self, sink_config: Any) -> Self:
        """End the pipeline in a sink."""
        return self._end("to_sink", [sink_config])

    def to_sinks(self, sink_configs: list[Any]) -> Self:
        """End the pipeline in several sinks, each of which gets all outputs."""
        if not isinstance(sink_configs, list) or not sink_configs:
            raise wrong("to_sinks()", f"Expecting a list of sinks. Got {sink_configs!r} instead.")
        return self._end("to_sinks", sink_configs)

    def done(self) -> Self:
        """End the pipeline without a sink."""
        self._open("done").is_closed = True
        return self

    def build(self) -> Application:
        """Check and plan the application; ``application_setup`` returns the result."""
        if not self._lines:
            raise wrong(self._name, "There is no pipeline.", "Begin with new_pipeline().")
        for line in self._lines:
            if not line.is_closed:
                raise wrong(
                    f"pipeline '{line.name}'", "It is open.", "End it with to_sink() or done()."
                )
        if not any(line.sinks for line in self._lines):
            what = "All pipelines end in done(): there would be no output."
            raise wrong(self._name, what, "End at least one in to_sink().")
        return build_application(self._name, _GraphBuilder(self._lines).build())

    def _open(self, method: str) -> _Line:
        if not self._lines or self._lines[-1].is_closed:
            raise wrong(f"{method}()", "There is no open pipeline.", "Begin with new_pipeline().")
        return self._lines[-1]

    def _end(self, method: str, sinks: list[Any]) -> Self:
        line = self._open(method)
        line.sinks = list(map(with_encoder, sinks))
        line.is_closed = True
        return self

    def _made(self, method: str, computation: Any) -> Any:
        if isinstance(computation, kinds.Computation | kinds.ComputationMulti):
            return computation
        if not inspect.isclass(computation):
            raise wrong(f"{method}()", "Expecting a Computation class. Got an instance instead.")
        return computation()

    def _check_instances(self, method: str, computation: Any, state_builder: Any) -> None:
        is_decorated = isinstance(computation, kinds.Step)
        if is_decorated and not isinstance(computation, _OF_2018):
            what = f"The {computation.kind} '{computation.step_name}' is not one for a state here."
            fix = "Decorate it with @wallaroo.state_computation(name='...'), without a state."
            raise wrong(f"{method}()", what, fix)
        for given, what in ((computation, "Computation"), (state_builder, "State")):
            if inspect.isclass(given) and not is_decorated:
                raise wrong(
                    f"{method}()", f"Expecting a {what} Builder instance. Got a class instead."
                )


class _GraphBuilder:
    """Builder of one graph of all pipelines."""

    def __init__(self, lines: list[_Line]):
        self._lines = lines
        self._names: set[str] = set()
        self._streams = [
            _Stream(self._entered(number, line), {number: 0}) for number, line in enumerate(lines)
        ]

    def build(self) -> Pipeline[Any]:
        for state in _in_order([line.states() for line in self._lines]):
            self._share(state)
        for stream in self._streams:
            for number in stream.done:
                self._advance(stream, number)
        pipeline = self._joined(self._streams).pipeline
        sinks = [(number, sink) for number, line in enumerate(self._lines) for sink in line.sinks]
        with_sink = frozenset(number for number, _ in sinks)
        if len(with_sink) < len(self._lines):
            keep = functions.is_kept(with_sink)
            pipeline = pipeline.to(kinds.Filter(keep, self._name("done")))  # type: ignore[call-overload]  # a step like others
        return pipeline.to_sinks([_own(number, sink) for number, sink in sinks])

    def _entered(self, number: int, line: _Line) -> Pipeline[Any]:
        enter: kinds.Computation[Any, Any] = kinds.Computation(
            functions.tagged(number), self._name(f"enter {line.name}")
        )
        return source(line.name, line.config).to(enter)

    def _advance(self, stream: _Stream, number: int) -> None:
        """Add a pipeline's steps up to its next state."""
        line = self._lines[number]
        while stream.done[number] < len(line.steps):
            step = line.steps[stream.done[number]]
            if isinstance(step, _Stateful):
                return
            made: kinds.ComputationMulti[Any, Any] = kinds.ComputationMulti(
                functions.stateless(number, step.computation),
                self._name(_name_of(step.computation), line.name),
            )
            stream.pipeline = stream.pipeline.to(made)
            stream.done[number] += 1

    def _share(self, state: str) -> None:
        """Merge the pipelines that use a state, and run their computations on it."""
        users: dict[int, _Stateful] = {}
        joining = []
        for stream in list(self._streams):
            for number in stream.done:
                self._advance(stream, number)
                step = self._next(stream, number)
                if step is not None and step.state == state:
                    users[number] = step
            if any(number in users for number in stream.done):
                joining.append(stream)
                self._streams.remove(stream)
        joined = self._joined(joining)
        joined.pipeline = self._with_state(joined.pipeline, state, users)
        for number in users:
            joined.done[number] += 1
        self._streams.append(joined)

    def _next(self, stream: _Stream, number: int) -> _Stateful | None:
        steps = self._lines[number].steps
        at = stream.done[number]
        return steps[at] if at < len(steps) else None  # type: ignore[return-value]  # advanced to a state

    def _with_state(
        self, pipeline: Pipeline[Any], state: str, users: dict[int, _Stateful]
    ) -> Pipeline[Any]:
        self._require_same(state, users)
        partitions = {number: step.partition for number, step in users.items()}
        listed = next(iter(users.values())).keys
        keys = None if listed is None else functions.listed_keys(listed)
        find: kinds.Computation[Any, Any] = kinds.Computation(
            functions.keyed(partitions, keys), self._name(f"key of {state}")
        )
        extract: kinds.KeyExtractor[Any, Any] = kinds.KeyExtractor(
            functions.key_of, self._name(f"partition of {state}")
        )
        builder = next(iter(users.values())).builder
        computations = {number: step.computation for number, step in users.items()}
        cls = _class_of(state, builder)
        compute: kinds.StateComputationMulti[Any, Any, Any] = kinds.StateComputationMulti(
            functions.stateful(computations), self._name(state), cls, builder=Built(builder, cls)
        )
        return pipeline.to(find).key_by(extract).to(compute)

    def _require_same(self, state: str, users: dict[int, _Stateful]) -> None:
        """Raise PipelineError if pipelines that share a state mean different ones."""
        (first, one), *others = users.items()
        for number, other in others:
            names = f"Pipelines '{self._lines[first].name}' and '{self._lines[number].name}'"
            classes = _class_of(state, one.builder), _class_of(state, other.builder)
            what = ""
            if classes[0] is not classes[1]:
                what = f"are of {classes[0].__name__} and {classes[1].__name__}"
            elif one.keys != other.keys:
                what = "have different partition keys"
            if what:
                fix = "Give each of them a state name of its own, or the same state."
                raise wrong(f"state '{state}'", f"{names} share it, and {what}.", fix)

    def _joined(self, streams: list[_Stream]) -> _Stream:
        first, *others = streams
        for other in others:
            first = _Stream(first.pipeline.merge(other.pipeline), {**first.done, **other.done})
        return first

    def _name(self, wanted: str, pipeline: str = "") -> str:
        """Return a name that no other step has."""
        candidates = [wanted, f"{pipeline}: {wanted}"]
        candidates += [f"{wanted} ({number})" for number in range(2, len(self._names) + 3)]
        name = next(name for name in candidates if name not in self._names)
        self._names.add(name)
        return name


def _distinct(keys: list[Hashable]) -> frozenset[Any] | None:
    """Return partition keys as a set; None if there are none: any key counts."""
    distinct: set[Any] = set()
    for key in keys:
        try:
            is_repeated = key in distinct
        except TypeError:
            what = f"The partition key {key!r} is not hashable."
            raise wrong("to_state_partition()", what, "Give texts, numbers or bytes.") from None
        if is_repeated:
            what = f"The partition key {key!r} is there twice."
            raise wrong("to_state_partition()", what, "Give each key once.")
        distinct.add(key)
    return frozenset(distinct) or None


def _builder(given: Any) -> Any:
    """Return the builder of a state; that of a class builds its instances."""
    return OfClass(given) if inspect.isclass(given) else given


def _class_of(state: str, builder: Any) -> type[Any]:
    """Return the class of the objects that a builder creates."""
    try:
        return type(builder.build())
    except Exception as error:
        what = f"Its builder raised {type(error).__name__}: {error}."
        fix = "build() is called when the application is built, and on any worker."
        raise wrong(f"state '{state}'", what, fix) from error


def _in_order(chains: list[list[str]]) -> list[str]:
    """Order states so that every pipeline meets its own in the order it names them."""
    rest = [chain for chain in chains if chain]
    ordered: list[str] = []
    while rest:
        ready = next((chain[0] for chain in rest if _is_first(chain[0], rest)), None)
        if ready is None or ready in ordered:
            named = rest[0][0] if ready is None else ready
            what = f"State '{named}' comes before and after the states that it comes with."
            raise wrong("build()", what, "Use each state once in a pipeline, in one order in all.")
        ordered.append(ready)
        rest = [chain[1:] if chain[0] == ready else chain for chain in rest]
        rest = [chain for chain in rest if chain]
    return ordered


def _is_first(state: str, chains: list[list[str]]) -> bool:
    return all(state not in chain[1:] for chain in chains)


def _own(number: int, sink: Any) -> Any:
    """Return a pipeline's sink, which ignores the outputs of other pipelines."""
    encoder = getattr(sink, "encoder", None)
    if isinstance(encoder, WrappedEncoder):
        encoder = encoder.inner  # `replace` wraps its argument
    encode = encoder.function if isinstance(encoder, kinds.Encoder) else None
    name = encoder.step_name if isinstance(encoder, kinds.Encoder) else "encode"
    made: kinds.Encoder[Any] = kinds.Encoder(functions.encoded(number, encode), name)
    return replace(sink, encoder=made)


def _name_of(computation: Any) -> str:
    name = getattr(computation, "name", None)
    return str(name()) if callable(name) else type(computation).__name__
