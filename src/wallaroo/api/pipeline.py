"""``source`` and the pipelines it starts, chained together by users.

A pipeline is a value: every call returns a new pipeline and leaves the one it was called on
unchanged.  So several pipelines may continue one: each receives all of its events.  Nothing is
checked here; all problems are reported together by ``build_application``.  The classes let mypy
check the types of events: ``Pipeline[T]`` carries events of type ``T``, ``KeyedPipeline[K, T]``
carries them with a key, and only it accepts state steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from inspect import isclass
from linecache import getline
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeGuard, TypeVar, overload

from wallaroo.api.decorators import check_on_error
from wallaroo.api.discarded import note
from wallaroo.api.joins import NOT_GIVEN, pair_join
from wallaroo.api.times import hours, required_span
from wallaroo.api.windows import RangeWindows
from wallaroo.dataflow.graph.nodes import (
    BranchNode,
    CollectNode,
    KeyByNode,
    MergeNode,
    Node,
    SideNode,
    SinkNode,
    SourceNode,
    StepNode,
)
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.interface import SinkConfig
from wallaroo.steps.batching import LatestPerKey, gather
from wallaroo.steps.joins.step import (
    INNER,
    LEFT_SIDE,
    RIGHT_SIDE,
    Dedupe,
    InOrder,
    JoinSpec,
    LatestJoin,
    Matching,
    OrderSpec,
    WindowJoin,
    WindowJoinSpec,
    pair,
    whole_event,
)
from wallaroo.steps.keys import Key
from wallaroo.steps.kinds import (
    STOP,
    Branch,
    Computation,
    ComputationMulti,
    Decoder,
    EventTime,
    Filter,
    KeyExtractor,
    Peek,
    StateComputation,
    StateComputationMulti,
    Step,
    receipt_time,
)
from wallaroo.steps.times import EARLIEST_NS, TIME_LIMIT_NS, Span, span_ns
from wallaroo.steps.windows.interface import is_late, late_event, no_late_events
from wallaroo.steps.windows.step import WindowStep
from wallaroo.user_code.user_frames import user_place
from wallaroo.vectorized.steps import BatchDecoder, BatchKeyExtractor, Column, ColumnTime

if TYPE_CHECKING:
    from wallaroo.steps.windows.aggregation import Aggregation

# how far an event's time may be ahead of its receipt by default
MAX_AHEAD = hours(24)

T = TypeVar("T", covariant=True)
K = TypeVar("K", bound=Key, covariant=True)
Event = TypeVar("Event")
U = TypeVar("U")
Joined = TypeVar("Joined")
Out = TypeVar("Out")
S = TypeVar("S")
KeyU = TypeVar("KeyU", bound=Key)


class SourceOf(Protocol[T]):
    """Any source configuration; its decoder determines the type of its events."""

    @property
    def name(self) -> str:
        """Return the name used on the command line."""

    @property
    def decoder(self) -> Decoder[T]:
        """Return the decoder that turns frames into events."""


class Pipeline(Generic[T]):
    """A stream of events of type ``T``, from one or several sources.

    >>> import wallaroo
    >>> @wallaroo.computation
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double.compute(21)
    42
    """

    __slots__ = ("_node",)

    def __init__(self, node: Node):
        self._node = node
        note(node)

    @property
    def node(self) -> Node:
        """Return the newest node of the graph (``wallaroo.dataflow.graph``)."""
        return self._node

    @overload
    def to(self: Pipeline[Event], computation: Computation[Event, U]) -> Pipeline[U]: ...
    @overload
    def to(self: Pipeline[Event], computation: ComputationMulti[Event, U]) -> Pipeline[U]: ...
    def to(self, computation: Any) -> Pipeline[Any]:
        """Add a step.  A state step needs ``key_by`` or ``collect`` before it."""
        return type(self)(StepNode(self._node, computation, user_place()))

    @overload
    def key_by(
        self: Pipeline[Event], key_extractor: KeyExtractor[Event, KeyU]
    ) -> KeyedPipeline[KeyU, Event]: ...
    @overload
    def key_by(
        self: Pipeline[Event], key_extractor: Callable[[Event], KeyU]
    ) -> KeyedPipeline[KeyU, Event]: ...
    @overload
    def key_by(self: Pipeline[Event], key_extractor: str) -> KeyedPipeline[Any, Event]: ...
    def key_by(self, key_extractor: Any) -> KeyedPipeline[Any, Any]:
        """Assign a key to every event: a str, bytes, int, or a tuple of these.

        The key is the result of a key extractor, or of a plain function of one event:
        ``key_by(lambda bid: (bid.bidder, bid.auction))``, or the value of a named column, item or
        attribute: ``key_by("customer")``.  State steps after it keep one state per key, and events
        of one key keep their order.
        """
        place = user_place()
        extractor = key_extractor
        if isinstance(extractor, str) and extractor:
            kind = BatchKeyExtractor if _has_rows(self._node) else KeyExtractor
            extractor = kind(Column(extractor), extractor).used(place)
        elif _is_plain(extractor):
            extractor = KeyExtractor(extractor, _name_of("key_by", extractor, None, place))
        return KeyedPipeline(KeyByNode(self._node, extractor, place))

    def map(
        self, function: Callable[[T], U | None], *, name: str | None = None, on_error: str = STOP
    ) -> Pipeline[U]:
        """Add a plain function of one event: its result is the output, ``None`` filters.

        For all four of ``map``, ``flat_map``, ``filter`` and ``peek``: ``name`` defaults to the
        function's name, or a lambda's place; a function at the top level of its module is pickled
        by name, any other by value with the objects it refers to.
        """
        return Pipeline(_step(self, Computation, function, name, on_error))

    def flat_map(
        self, function: Callable[[T], Iterable[U]], *, name: str | None = None, on_error: str = STOP
    ) -> Pipeline[U]:
        """Add a plain function of one event that returns its outputs, as a list or a generator."""
        return Pipeline(_step(self, ComputationMulti, function, name, on_error))

    def filter(
        self, predicate: Callable[[T], object], *, name: str | None = None, on_error: str = STOP
    ) -> Self:
        """Keep the events for which the function returns a true value."""
        return type(self)(_step(self, Filter, predicate, name, on_error))

    def peek(
        self, function: Callable[[T], object], *, name: str | None = None, on_error: str = STOP
    ) -> Self:
        """Call the function for each event, which passes unchanged; its result is ignored."""
        return type(self)(_step(self, Peek, function, name, on_error))

    @overload
    def branch(
        self,
        predicate: Callable[[T], TypeGuard[U]],
        *,
        name: str | None = None,
        on_error: str = STOP,
    ) -> tuple[Pipeline[U], Pipeline[T]]: ...
    @overload
    def branch(
        self, predicate: Callable[[T], object], *, name: str | None = None, on_error: str = STOP
    ) -> tuple[Self, Self]: ...
    def branch(
        self, predicate: Callable[[T], Any], *, name: str | None = None, on_error: str = STOP
    ) -> tuple[Any, Any]:
        """Split the stream in two by a predicate.

        The first pipeline has the events for which the function returns a true value, the second
        all others.  Each continues with steps and sinks of its own, and both are passed to
        ``build_application`` or merged again.  A predicate that is a ``TypeGuard`` determines the
        type of the first one.  Events keep their key; ``name`` is as for ``map``.
        """
        step = _step(self, Branch, predicate, name, on_error)
        node = BranchNode(self._node, step.step, step.place)
        sides = [SideNode(node, is_true, step.place) for is_true in (True, False)]
        return type(self)(sides[0]), type(self)(sides[1])

    def with_event_time(
        self,
        extractor: Callable[[T], datetime | float] | str | None = None,
        *,
        delay: Span = 0,
        idle_after: Span | None = None,
        max_ahead: Span = MAX_AHEAD,
        allow_before_1980: bool = False,
        on_error: str = STOP,
        name: str | None = None,
    ) -> Self:
        """Set every event's time to the result of ``extractor``.

        It returns an aware datetime, seconds as float, or nanoseconds as int; without an extractor,
        an event's time is that of its receipt.  The name of a column, item or attribute may replace
        the function; directly after a vectorized decoder and vectorized steps it sets the times of
        rows.  This step precedes the first ``key_by``.

        A source's watermark is its newest time so far minus ``delay``: events out of order by up to
        that much are not late. A source without events for ``idle_after`` does not hold back event
        time; without ``idle_after`` it does.  An event that is more than ``max_ahead`` ahead of its
        receipt is counted and skipped, or written to the dead letters with
        ``on_error="dead-letter"``.  Spans are written as ``wallaroo.seconds(1)`` or
        ``timedelta(seconds=1)``.

        A time before 1980 is rejected: nearly always it is in milliseconds or seconds.
        ``allow_before_1980`` accepts it, for older data and for small numbers in tests.

        The step is named after its line; give a ``name`` if a line adds several such steps.
        """
        check_on_error("event_time", on_error)
        place = user_place()
        title = "with_event_time()"
        delay_ns = required_span(title, place, "delay", delay)
        idle_ns = None
        if idle_after is not None:
            idle_ns = required_span(title, place, "idle_after", idle_after)
        ahead_ns = required_span(title, place, "max_ahead", max_ahead)
        is_name = isinstance(extractor, str) and extractor != ""
        if extractor is not None and not callable(extractor) and not is_name:
            what = f"The extractor is {extractor!r}, not a function."
            fix = "Give it a function of one event that returns the event's time."
            raise WallarooParameterError(Problem(title, place, what, fix))
        function: Any = receipt_time if extractor is None else extractor
        if isinstance(extractor, str):
            function = Column(extractor)
        name = name or f"event time at {PurePath(place).name}"
        earliest_ns = -TIME_LIMIT_NS if allow_before_1980 else EARLIEST_NS
        kind = ColumnTime[Any] if is_name and _has_rows(self._node) else EventTime[Any]
        step = kind(function, name, on_error, delay_ns, idle_ns, ahead_ns, earliest_ns)
        return type(self)(StepNode(self._node, step, place))

    def collect(self) -> KeyedPipeline[str, T]:
        """Route all events to one task with one order and state; later steps use one core."""
        return KeyedPipeline(CollectNode(self._node, user_place()))

    def merge(self, other: Pipeline[U]) -> Pipeline[T | U]:
        """Merge both streams; each stays ordered per key, with no order between them."""
        merged: Any = other
        if not isinstance(merged, Pipeline):
            what = f"{merged!r:.60} is not a pipeline."
            fix = "Pass the other pipeline, as in first.merge(second)."
            raise WallarooParameterError(Problem("merge()", user_place(), what, fix))
        node = MergeNode(self._node, other._node, user_place())
        is_keyed = isinstance(self, KeyedPipeline) and isinstance(other, KeyedPipeline)
        return KeyedPipeline(node) if is_keyed else Pipeline(node)

    def to_sink(self, sink_config: SinkConfig) -> Pipeline[T]:
        """End the pipeline in a sink."""
        return Pipeline(SinkNode(self._node, (sink_config,), user_place()))

    def to_sinks(self, sink_configs: Sequence[SinkConfig]) -> Pipeline[T]:
        """End the pipeline in several sinks; every output is written to all of them."""
        sinks = tuple(sink_configs) if isinstance(sink_configs, list | tuple) else (sink_configs,)
        return Pipeline(SinkNode(self._node, sinks, user_place()))

    def clone(self) -> Pipeline[T]:
        """Return an equal pipeline.  Pipelines never change, so only old code needs this."""
        return type(self)(self._node)

    def _repr_svg_(self) -> str:
        """Draw the graph so far, for notebooks."""
        from wallaroo.dataflow.graph.svg import svg

        return svg(self._node)

    def _repr_html_(self) -> str:
        """Draw the graph so far in HTML, for notebooks that prefer it."""
        return f"<div>{self._repr_svg_()}</div>"

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} ending in {type(self._node).__name__} at {self._node.place}>"
        )


class KeyedPipeline(Pipeline[T], Generic[K, T]):
    """A stream of events of type ``T`` with keys of type ``K``.

    Each event has one key.
    """

    __slots__ = ()

    @overload
    def to(
        self: KeyedPipeline[K, Event], computation: Computation[Event, U]
    ) -> KeyedPipeline[K, U]: ...
    @overload
    def to(
        self: KeyedPipeline[K, Event], computation: ComputationMulti[Event, U]
    ) -> KeyedPipeline[K, U]: ...
    @overload
    def to(
        self: KeyedPipeline[K, Event], computation: StateComputation[Event, S, U]
    ) -> KeyedPipeline[K, U]: ...
    @overload
    def to(
        self: KeyedPipeline[K, Event], computation: StateComputationMulti[Event, S, U]
    ) -> KeyedPipeline[K, U]: ...
    @overload
    def to(
        self: KeyedPipeline[K, Event], computation: WindowStep[Event, U]
    ) -> KeyedPipeline[K, U]: ...
    def to(self, computation: Any) -> KeyedPipeline[K, Any]:
        """Add a step; its outputs keep the key of the event they come from."""
        return KeyedPipeline(StepNode(self._node, computation, user_place()))

    def map(
        self, function: Callable[[T], U | None], *, name: str | None = None, on_error: str = STOP
    ) -> KeyedPipeline[K, U]:
        """Add a plain function of one event; its output keeps the event's key."""
        return KeyedPipeline(_step(self, Computation, function, name, on_error))

    def flat_map(
        self, function: Callable[[T], Iterable[U]], *, name: str | None = None, on_error: str = STOP
    ) -> KeyedPipeline[K, U]:
        """Add a plain function of one event; its outputs keep the event's key."""
        return KeyedPipeline(_step(self, ComputationMulti, function, name, on_error))

    @overload
    def branch(
        self,
        predicate: Callable[[T], TypeGuard[U]],
        *,
        name: str | None = None,
        on_error: str = STOP,
    ) -> tuple[KeyedPipeline[K, U], KeyedPipeline[K, T]]: ...
    @overload
    def branch(
        self, predicate: Callable[[T], object], *, name: str | None = None, on_error: str = STOP
    ) -> tuple[Self, Self]: ...
    def branch(
        self, predicate: Callable[[T], Any], *, name: str | None = None, on_error: str = STOP
    ) -> tuple[Any, Any]:
        """Split the stream in two by a predicate; events keep their key."""
        return super().branch(predicate, name=name, on_error=on_error)

    @overload
    def merge(self, other: KeyedPipeline[KeyU, U]) -> KeyedPipeline[K | KeyU, T | U]: ...
    @overload
    def merge(self, other: Pipeline[U]) -> Pipeline[T | U]: ...
    def merge(self, other: Any) -> Any:
        """Merge both streams; the result is keyed if both are."""
        return super().merge(other)

    def clone(self) -> KeyedPipeline[K, T]:
        """Return an equal pipeline."""
        return KeyedPipeline(self._node)

    @overload
    def join(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: None = None,
        *,
        within: Span | None,
        ttl: Span | None = None,
        how: str = INNER,
        name: str = "join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, tuple[Event | None, U | None]]: ...
    @overload
    def join(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: Callable[[Any, Any], Joined | None],
        *,
        within: Span | None,
        ttl: Span | None = None,
        how: str = INNER,
        name: str = "join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, Joined]: ...
    @overload
    def join(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: None = None,
        *,
        until: Callable[[Event], datetime | float],
        how: str = INNER,
        name: str = "join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, tuple[Event | None, U | None]]: ...
    @overload
    def join(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: None = None,
        *,
        until: Callable[[Event], datetime | float],
        over: type[Aggregation[U, Any, Out]] | Aggregation[U, Any, Out],
        how: str = INNER,
        name: str = "join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, tuple[Event, Out | None]]: ...
    @overload
    def join(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: Callable[[Any, Any], Joined | None],
        *,
        until: Callable[[Event], datetime | float],
        over: type[Aggregation[U, Any, Any]] | Aggregation[U, Any, Any] | None = None,
        how: str = INNER,
        name: str = "join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, Joined]: ...
    def join(
        self,
        right: Any,
        combine: Callable[[Any, Any], Any] | None = None,
        *,
        within: Any = NOT_GIVEN,
        ttl: Span | None = None,
        until: Callable[[Any], Any] | None = None,
        over: Any = None,
        how: str = INNER,
        name: str = "join",
        on_error: str = STOP,
    ) -> Any:
        """Join events of one key.  Each pair has one result: ``combine(left, right)``, or a tuple.

        * ``within=span``: events whose times are at most a span apart.
        * ``until=function``: right events from the left event's time up to and including the time
          that the function returns for it. ``over=aggregation``: one result per left event once
          that time has passed: ``combine(left, result)`` with the aggregation's result over its
          right events.
        * ``within=None``: all events; both sides wait for the other forever or, with ``ttl=span``,
          events at most that far apart.  No event is late: an event behind the watermark gets the
          watermark as its time.

        ``how`` is ``"inner"``, ``"left"``, ``"right"`` or ``"outer"``: whether an unmatched event
        has a result, with None for the other side, once the watermark rules out a match.  Late
        events are dropped; with ``on_error="skip"`` they are counted as well, with
        ``"dead-letter"`` they are written to the dead letters.
        """
        options = {"within": within, "ttl": ttl, "until": until, "over": over, "how": how}
        step = pair_join(combine or pair, name, on_error, user_place(), **options)
        return _joined(self, right, step)

    @overload
    def join_latest(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: None = None,
        *,
        max_age: Span | None = None,
        how: str = "left",
        name: str = "latest",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, tuple[Event, U | None]]: ...
    @overload
    def join_latest(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        combine: Callable[[Any, Any], Joined | None],
        *,
        max_age: Span | None = None,
        how: str = "left",
        name: str = "latest",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, Joined]: ...
    def join_latest(
        self,
        right: Any,
        combine: Callable[[Any, Any], Any] | None = None,
        *,
        max_age: Span | None = None,
        how: str = "left",
        name: str = "latest",
        on_error: str = STOP,
    ) -> Any:
        """Join each event with the newest one of ``right`` at its time (an as-of join).

        The result is ``combine(event, newest)``, by default a tuple, emitted when the watermark has
        passed the event.

        Without such an event, or if it is older than ``max_age``, the result has None, or, with
        ``how="inner"``, there is no result.  Late events are treated as by ``join``.
        """
        spec = JoinSpec(span_ns(max_age), how)
        return _joined(self, right, LatestJoin(combine or pair, name, on_error, spec, user_place()))

    def batch(
        self: KeyedPipeline[K, Event], n: int, *, within: Span | None = None, name: str = "batch"
    ) -> KeyedPipeline[K, list[Event]]:
        """Collect the events of each key in lists of ``n``, in their order.

        A shorter list is emitted when its first event has waited for ``within`` by the clock (such
        as ``wallaroo.seconds(1)``), or when all input has ended.

        Waiting events are state: they survive crashes, and are emitted once.  The clock is read
        once per committed batch, so lists are timed no more precisely than batches.  For lists of
        the events of *all* keys, use ``collect()`` before it; for lists of events that arrived
        together, without keys or waiting, use ``@wallaroo.batch_computation``.
        """
        place = user_place()
        if type(n) is not int or n < 1:
            what = f"n={n!r} is not a number of events."
            fix = "Give it a whole number of 1 or more, as batch(100, within=wallaroo.seconds(1))."
            raise WallarooParameterError(Problem(f"step '{name}'", place, what, fix))
        within_ns = None
        if within is not None:
            within_ns = required_span(f"step '{name}'", place, "within", within, 1)
        return KeyedPipeline(StepNode(self._node, gather(n, within_ns, name, place), place))

    @overload
    def join_windows(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        windows: RangeWindows,
        combine: None = None,
        *,
        how: str = INNER,
        name: str = "window join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, tuple[Event | None, U | None]]: ...
    @overload
    def join_windows(
        self: KeyedPipeline[K, Event],
        right: KeyedPipeline[KeyU, U],
        windows: RangeWindows,
        combine: Callable[[Any, Any], Joined | None],
        *,
        how: str = INNER,
        name: str = "window join",
        on_error: str = STOP,
    ) -> KeyedPipeline[K | KeyU, Joined]: ...
    def join_windows(
        self,
        right: Any,
        windows: RangeWindows,
        combine: Callable[[Any, Any], Any] | None = None,
        *,
        how: str = INNER,
        name: str = "window join",
        on_error: str = STOP,
    ) -> Any:
        """Join events of one key that are in one window of ``windows``.

        ``windows`` is a ``wallaroo.range_windows``.  Each pair has one result per window,
        ``combine(left, right)``, by default a tuple, emitted when the window fires.

        ``how`` is as for ``join``: whether events of a window in which the other side has none have
        results, with None for it.  Late events are treated as by ``join``.
        """
        given: Any = windows
        if not isinstance(given, RangeWindows):
            what = f"join_windows() was given {given!r:.60} instead of windows."
            fix = "Give it wallaroo.range_windows(...), with no over()."
            raise WallarooParameterError(Problem(f"step '{name}'", user_place(), what, fix))
        step: WindowJoin[Any] = WindowJoin(
            combine or pair, name, on_error, WindowJoinSpec(windows.spec, how), user_place()
        )
        return _joined(self, right, step)

    def dedupe(
        self,
        by: Callable[[T], Any] | None = None,
        *,
        within: Span,
        name: str = "dedupe",
        on_error: str = STOP,
    ) -> Self:
        """Drop repeated events of a key.

        An event is dropped if one with its key and ``by(event)`` at most ``within`` before or after
        its time was emitted; without ``by`` all events of a key are equal.

        An event that is more than ``within`` behind the watermark is late and dropped, too; with
        ``on_error="skip"`` it is counted as well, with ``"dead-letter"`` it is written to the dead
        letters.
        """
        step: Any = Dedupe(
            by or whole_event, name, on_error, JoinSpec(span_ns(within)), user_place()
        )
        return type(self)(StepNode(self._node, step, user_place()))

    def in_order(self, *, name: str = "in order", on_error: str = STOP) -> Self:
        """Hold each event until the watermark has passed it; emit each key's events in time order.

        Events of one time are emitted in an order that depends only on the events themselves.

        Late events are dropped; with ``on_error="skip"`` they are counted as well, with
        ``"dead-letter"`` they are written to the dead letters; ``with_late_events()`` returns them
        as a stream of their own.
        """
        place = user_place()
        check_on_error("in order", on_error)
        step: Any = InOrder(whole_event, name, on_error, OrderSpec(), place)
        return type(self)(StepNode(self._node, step, place))

    def latest_per_key(self, *, name: str = "latest per key") -> Self:
        """Keep only the last event of each key in every batch that is committed.

        For a sink of changing rows: a row that changes a thousand times in a batch is written once.
        Events of different batches do not replace each other: how many are emitted depends on how
        often the run commits, but the last one of a key always is.
        """
        place = user_place()
        step: Any = LatestPerKey(name, place)
        return type(self)(StepNode(self._node, step, place))

    def with_late_events(self) -> tuple[Self, KeyedPipeline[K, Any]]:
        """Split a step's output into its results and its late events.

        The step is windows, a join, ``dedupe`` or ``in_order``; late events keep their key and
        time.

        Call it right after that step, and pass both pipelines to ``build_application``; late events
        are then neither dropped, counted nor written as dead letters.
        """
        place = user_place()
        node = self._node
        step = node.step if isinstance(node, StepNode) else None
        if not isinstance(node, StepNode) or not isinstance(step, WindowStep | Matching):
            what = "with_late_events() does not come after windows, a join, dedupe or in_order."
            fix = "Write it right after to(windows), a join, dedupe() or in_order()."
            raise WallarooParameterError(Problem("with_late_events()", place, what, fix))
        reason = no_late_events(step.spec)
        if reason:
            title = f"step '{step.step_name}'"
            fix = "Leave out with_late_events(), or the late data policy."
            raise WallarooParameterError(Problem(title, place, reason, fix))
        giving = StepNode(node.upstream, step.giving_late(), node.place)
        parted: Branch[Any] = Branch(is_late, f"is it late for {step.step_name}")
        branch = BranchNode(giving, parted, place)
        late: Step = Computation(late_event, f"late for {step.step_name}")
        results = SideNode(branch, False, place)
        return type(self)(results), KeyedPipeline(
            StepNode(SideNode(branch, True, place), late, place)
        )


def source(name: str, source_config: SourceOf[U]) -> Pipeline[U]:
    """Start a pipeline.

    ``name`` labels it in metrics; the configuration has a name of its own, used on the command
    line.
    """
    return Pipeline(SourceNode(name, source_config, user_place()))


def _is_plain(given: Any) -> bool:
    """Return whether an object can compute keys: a function, or a class of keys."""
    if isclass(given):
        return given in (str, int, bytes)
    return callable(given) and not isinstance(given, Step)


def _joined(left: Pipeline[Any], right: Any, step: Step) -> KeyedPipeline[Any, Any]:
    """Merge two streams whose events carry their side, and add the step that joins them.

    Problems with ``right`` other than its type are left to the checks.
    """
    place = user_place()
    check_on_error(step.kind, step.on_error)
    if not isinstance(right, Pipeline):
        what = f"{step.kind} was given {right!r:.60} instead of a pipeline."
        fix = "Give it the other keyed pipeline."
        raise WallarooParameterError(Problem(f"step '{step.step_name}'", place, what, fix))
    sides = MergeNode(
        StepNode(left.node, LEFT_SIDE, place), StepNode(right.node, RIGHT_SIDE, place), place
    )
    return KeyedPipeline(StepNode(sides, step, place))


def _step(
    pipeline: Pipeline[Any], kind: type[Step], function: Any, name: str | None, on_error: str
) -> StepNode:
    """Return the node of a plain function's step; anything else is left to the checks."""
    check_on_error(kind.kind, on_error)
    place = user_place()
    if not callable(function) or isinstance(function, Step):
        return StepNode(pipeline.node, function, place)
    name = _name_of(kind.kind, function, name, place)
    return StepNode(pipeline.node, kind(function, name, on_error), place)


def _has_rows(node: Node) -> bool:
    """Return whether a node emits blocks of rows, not events."""
    if isinstance(node, MergeNode):
        return _has_rows(node.left) and _has_rows(node.right)
    if isinstance(node, SourceNode):
        return isinstance(getattr(node.config, "decoder", None), BatchDecoder)
    own = getattr(node, "step", None) or getattr(node, "extractor", None)
    return isinstance(own, Step) and own.takes_blocks


def _name_of(kind: str, function: Any, name: str | None, place: str) -> str | None:
    """Return the name of a plain function's step; a lambda is named after its place.

    If there are several lambdas on its line, its column is part of its place.
    """
    if name is not None or getattr(function, "__name__", "") != "<lambda>":
        return name
    code = function.__code__
    line = getline(code.co_filename, code.co_firstlineno)
    columns = [column for _, _, column, _ in code.co_positions() if column]
    column = f":{min(columns)}" if columns and line.count("lambda") > 1 else ""
    return f"{kind} at {PurePath(place).name}{column}"
