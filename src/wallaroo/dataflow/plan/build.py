"""The planner: from the graph to the plan.

Its passes are in a tuple, each a plain function from sketch to sketch.

The planner cuts the graph into stages at its shuffles, and at every split of a stream.  While it
walks from the sources to the sinks, it keeps for every node the *open* stages that reach it, and
whether they still have a shuffle to pass through (``pending``): a shuffle begins a stage only if a
step or a sink follows, so that sides merged after their ``key_by`` meet in one stage.

If a stream splits, each open stage ends in branches.  A stream that splits after its ``key_by``
passes through the shuffle first, and once; only branches that are merged before their next step
pass through a shuffle of their own, with the streams that they are merged with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from wallaroo.dataflow.graph.nodes import (
    BranchNode,
    CollectNode,
    EndsNode,
    KeyByNode,
    MergeNode,
    Node,
    SideNode,
    SinkNode,
    SourceNode,
    StepNode,
)
from wallaroo.dataflow.graph.walk import (
    consumers_of,
    idle_key_bys,
    is_state_step,
    sinks_of,
    upstreams,
    walk,
)
from wallaroo.dataflow.plan.model import (
    DEAD_LETTERS,
    BranchEntry,
    ExchangeEntry,
    Plan,
    SinkPlan,
    SourceEntry,
    SourcePlan,
    Stage,
    ToBranches,
    ToExchange,
    ToSinks,
)
from wallaroo.dataflow.plan.ordering import Ordering
from wallaroo.dataflow.plan.sink_ids import fresh_ids
from wallaroo.steps.batching import LatestPerKey
from wallaroo.steps.joins.columns import WithColumns
from wallaroo.steps.joins.step import ROW_JOINS, Matching
from wallaroo.steps.kinds import Branch, EventTime, Step
from wallaroo.steps.windows.step import WindowStep


@dataclass(frozen=True, slots=True)
class Sketch:
    """An unfinished plan; ``idle`` are the key_by nodes to leave out."""

    root: Node
    plan: Plan
    idle: dict[KeyByNode, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Open:
    """A stage with an unknown exit."""

    id: int
    entry: SourceEntry | ExchangeEntry | BranchEntry
    level: int
    why: str
    steps: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stream:
    """An open stage before a node.

    ``pending``: a key_by or collect without a shuffle.
    """

    stage: _Open
    pending: KeyByNode | CollectNode | None = None
    side: int | None = None  # the side of a join that events are marked with after that shuffle


def number_sources(sketch: Sketch) -> Sketch:
    """List the sources, left to right."""
    sources = tuple(
        SourcePlan(node.name, node.config, node.config.decoder.used(node.place))
        for node in walk(sketch.root)
        if isinstance(node, SourceNode)
    )
    return replace(sketch, plan=replace(sketch.plan, sources=sources))


def number_sinks(sketch: Sketch) -> Sketch:
    """List the sinks, each with an id (``plan.sink_ids``)."""
    placed = [(config, node.place) for node in sinks_of(sketch.root) for config in node.sinks]
    ids = fresh_ids([config for config, _ in placed])
    sinks = tuple(
        SinkPlan(name, config, config.encoder and config.encoder.used(place))
        for name, (config, place) in zip(ids, placed, strict=True)
    )
    return replace(sketch, plan=replace(sketch.plan, sinks=sinks))


def leave_out_idle_keys(sketch: Sketch) -> Sketch:
    """Find each key_by that no state step sees, and whose shuffle would be useless."""
    idle = idle_key_bys(sketch.root)
    notes = tuple(
        f"key_by '{node.extractor.step_name}' shuffles nothing: {reason}."
        for node, reason in idle.items()
    )
    return replace(sketch, idle=idle, plan=replace(sketch.plan, notes=(*sketch.plan.notes, *notes)))


def cut_stages(sketch: Sketch) -> Sketch:
    """Cut the graph into stages at its shuffles."""
    return replace(sketch, plan=replace(sketch.plan, stages=_Cutter(sketch).cut()))


def put_events_in_order(sketch: Sketch) -> Sketch:
    """Order events by time before steps that depend on it, unless already in order."""
    plan = sketch.plan
    ordering = Ordering(plan)
    stages = ordering.stages()
    notes = (*plan.notes, *ordering.notes)
    warnings = tuple(ordering.warnings)
    return replace(sketch, plan=replace(plan, stages=stages, notes=notes, warnings=warnings))


def join_rows(sketch: Sketch) -> Sketch:
    """Join rows by the block if both sides are rows, and results are columns of both."""
    plan = sketch.plan
    leaving: dict[int, list[ToExchange]] = {}
    for stage in plan.stages:
        if isinstance(stage.exit, ToExchange):
            leaving.setdefault(stage.exit.stage, []).append(stage.exit)
    joining = {stage.id for stage in plan.stages if _joins_rows(stage, leaving.get(stage.id, []))}

    def changed(stage: Stage) -> Stage:
        leave = stage.exit
        if isinstance(leave, ToExchange) and leave.stage in joining:
            stage = replace(stage, exit=replace(leave, keeps_rows=True))
        if stage.id not in joining:
            return stage
        first, *others = stage.steps
        joined = ROW_JOINS[type(first)](first.function, *first.options())
        return replace(stage, steps=(joined, *others))

    return replace(sketch, plan=replace(plan, stages=tuple(map(changed, plan.stages))))


def _joins_rows(stage: Stage, leaving: list[ToExchange]) -> bool:
    first = next(iter(stage.steps), None)
    if not isinstance(first, Matching) or type(first) not in ROW_JOINS or first.gives_late:
        return False
    return isinstance(first.function, WithColumns) and all(
        leave.side is not None and leave.extractor is not None and leave.extractor.takes_blocks
        for leave in leaving
    )


def add_up_before_shuffles(sketch: Sketch) -> Sketch:
    """Pre-aggregate events where they are read, if windows right after a shuffle allow it.

    Their aggregation must allow it.  A shuffle then carries an accumulator per key and pane, not
    events.  With vectorized steps, only rows with a vectorized key extractor are pre-aggregated.
    """
    plan = sketch.plan

    def changed(stage: Stage) -> Stage:
        leave = stage.exit
        if not isinstance(leave, ToExchange) or leave.keeps_key or leave.side is not None:
            return stage
        first = next(iter(plan.stages[leave.stage].steps), None)
        if not isinstance(first, WindowStep):
            return stage
        if plan.has_blocks:
            takes_rows = leave.extractor is not None and leave.extractor.takes_blocks
            may_add_up = takes_rows and first.adds_up_rows
        else:
            may_add_up = first.adds_up
        if not may_add_up:
            return stage
        return replace(stage, exit=replace(leave, pre_aggregated=first))

    return replace(sketch, plan=replace(plan, stages=tuple(map(changed, plan.stages))))


def ship_raw_frames(sketch: Sketch) -> Sketch:
    """Ship undecoded frames if only a pure decoder comes before a key_by.

    ``with_event_time`` is allowed as well. Decoding twice is cheaper than pickling once.
    """
    plan = sketch.plan
    notes: dict[str, None] = {}

    def shipped(stage: Stage) -> Stage:
        leave = stage.exit
        if not all(isinstance(step, EventTime) for step in stage.steps):
            return stage
        if not isinstance(stage.entry, SourceEntry):
            return stage
        if not isinstance(leave, ToExchange) or leave.extractor is None or leave.pre_aggregated:
            return stage
        source = plan.sources[stage.entry.source]
        decoder = source.decoder
        if not source.config.has_plain_payloads or decoder.takes_blocks:
            return stage
        if stage.steps and plan.has_blocks:
            return stage
        if decoder.is_pure:
            return replace(stage, exit=replace(leave, is_raw=True))
        notes[
            f"decoder '{decoder.step_name}' runs once for an event, and its events travel pickled. "
            f"If it is a pure function, declare it pure (@wallaroo.decoder(pure=True)): then "
            f"undecoded frames travel, which is faster."
        ] = None
        return stage

    stages = tuple(map(shipped, plan.stages))
    return replace(sketch, plan=replace(plan, stages=stages, notes=(*plan.notes, *notes)))


def drop_replaced_before_shuffles(sketch: Sketch) -> Sketch:
    """Drop events before a shuffle to ``latest_per_key`` if later ones replace them there.

    They must come from one stage: order among the events of several depends on their blocks.
    """
    plan = sketch.plan
    if plan.has_blocks or plan.has_time:
        return sketch
    leaving = [stage.exit for stage in plan.stages if isinstance(stage.exit, ToExchange)]
    origins = Counter(leave.stage for leave in leaving)

    def changed(stage: Stage) -> Stage:
        leave = stage.exit
        if not isinstance(leave, ToExchange) or leave.is_raw or origins[leave.stage] > 1:
            return stage
        first = next(iter(plan.stages[leave.stage].steps), None)
        if not isinstance(first, LatestPerKey):
            return stage
        return replace(stage, exit=replace(leave, latest=first))

    return replace(sketch, plan=replace(plan, stages=tuple(map(changed, plan.stages))))


Pass = Callable[[Sketch], Sketch]
PASSES: tuple[Pass, ...] = (
    number_sources,
    number_sinks,
    leave_out_idle_keys,
    cut_stages,
    put_events_in_order,
    join_rows,
    add_up_before_shuffles,
    ship_raw_frames,
    drop_replaced_before_shuffles,
)


def build_plan(
    application: str,
    root: Node,
    serializer: tuple[Any, Any] | None = None,
    dead_letters: Any = None,
) -> Plan:
    """Plan a checked graph; ``dead_letters`` is a sink configuration, or None."""
    sketch = Sketch(root, Plan(application, (), (), (), serializer=serializer))
    for run in PASSES:
        sketch = run(sketch)
    return sketch.plan if dead_letters is None else with_dead_letters(sketch.plan, dead_letters)


def with_dead_letters(plan: Plan, config: Any) -> Plan:
    """Return the plan with ``config`` as its only dead-letter sink."""
    results = plan.sinks if plan.dead_letters is None else plan.sinks[: plan.dead_letters]
    sinks = (*results, SinkPlan(DEAD_LETTERS, config, config.encoder))
    return replace(plan, sinks=sinks, dead_letters=len(results))


class _Cutter:
    """One walk over the graph.

    ``given``: streams that reach a node, by the node before.
    """

    def __init__(self, sketch: Sketch):
        self._sketch = sketch
        self._after = consumers_of(sketch.root)
        self._opened: list[_Open] = []
        self._exits: dict[int, ToExchange | ToSinks | ToBranches] = {}
        self._given: dict[tuple[Node, Node], list[list[_Stream]]] = {}
        self._sources = 0
        self._numbers = _sink_numbers(sketch.root)

    def cut(self) -> tuple[Stage, ...]:
        for node in walk(self._sketch.root):
            if not isinstance(node, EndsNode):
                self._give(node, self._through(node))
        return tuple(
            Stage(open_.id, open_.level, open_.entry, open_.steps, self._exits[open_.id], open_.why)
            for open_ in self._opened
        )

    def _through(self, node: Node) -> list[_Stream]:
        if isinstance(node, SourceNode):
            return [_Stream(self._open_source(node))]
        arriving = [
            stream for above in upstreams(node) for stream in self._given[above, node].pop(0)
        ]
        if isinstance(node, MergeNode | SideNode):
            return arriving
        if isinstance(node, KeyByNode) and node in self._sketch.idle:
            return arriving
        if isinstance(node, StepNode) and is_state_step(node):
            return self._step(node, self._meet(arriving, node))
        if _is_side_of_join(node) and all(stream.pending for stream in arriving):
            return [replace(stream, side=node.step.side) for stream in arriving]
        shuffled = self._shuffle(arriving)
        if isinstance(node, KeyByNode | CollectNode):
            return [_Stream(stream.stage, node) for stream in shuffled]
        if isinstance(node, SinkNode):
            return self._end(node, shuffled)
        return shuffled if isinstance(node, BranchNode) else self._step(node, shuffled)

    def _give(self, node: Node, streams: list[_Stream]) -> None:
        """Pass a node's output streams to the nodes after it."""
        consumers = self._after[node]
        if not consumers:
            return
        if isinstance(node, BranchNode):
            assert isinstance(node.step, Branch)
            ways = [self._ways(stream, 2, node.step) for stream in streams]
            for side in consumers:
                assert isinstance(side, SideNode)
                place = 0 if side.is_true else 1
                self._given[node, side] = [[way[place] for way in ways]]
            return
        merged: list[Node] = [
            each for each in consumers if isinstance(each, MergeNode) or _is_side_of_join(each)
        ]
        others = [each for each in consumers if each not in merged]
        if not any(stream.pending for stream in streams):
            merged = []
            others = consumers
        parts = self._parted(streams, len(merged) + bool(others))
        self._hand(node, merged, parts[: len(merged)])
        if others:
            shared = self._shuffle(parts[-1]) if len(others) > 1 else parts[-1]
            self._hand(node, others, self._parted(shared, len(others)))

    def _hand(self, node: Node, consumers: list[Node], parts: list[list[_Stream]]) -> None:
        for consumer, part in zip(consumers, parts, strict=True):
            self._given.setdefault((node, consumer), []).append(part)

    def _parted(self, streams: list[_Stream], number: int) -> list[list[_Stream]]:
        """Return the same streams for several consumers."""
        if number == 1:
            return [streams]
        ways = [self._ways(stream, number) for stream in streams]
        return [[way[place] for way in ways] for place in range(number)]

    def _ways(
        self, stream: _Stream, number: int, split: Branch[Any] | None = None
    ) -> list[_Stream]:
        """End a stage in branches, and continue in them."""
        stage = stream.stage
        reasons = _reasons_of_branches(stage.id, number, split)
        opened = [self._open(BranchEntry((stage.id,)), stage.level, why) for why in reasons]
        self._exits[stage.id] = ToBranches(tuple(each.id for each in opened), split)
        return [replace(stream, stage=each) for each in opened]

    def _open_source(self, node: SourceNode) -> _Open:
        index = self._sources
        self._sources += 1
        return self._open(
            SourceEntry(index), 0, f"It reads and decodes source '{node.config.name}'."
        )

    def _open(
        self, entry: SourceEntry | ExchangeEntry | BranchEntry, level: int, why: str
    ) -> _Open:
        opened = _Open(len(self._opened), entry, level, why)
        self._opened.append(opened)
        return opened

    def _step(self, node: Node, streams: list[_Stream]) -> list[_Stream]:
        assert isinstance(node, StepNode)
        step = node.step.used(node.place)
        for stream in streams:
            stream.stage.steps += (step,)
        return streams

    def _end(self, node: SinkNode, streams: list[_Stream]) -> list[_Stream]:
        numbers = self._numbers[node]
        for stream in streams:
            self._exits[stream.stage.id] = ToSinks(numbers)
        return streams

    def _shuffle(self, streams: list[_Stream]) -> list[_Stream]:
        """Send streams with a pending shuffle through one; leave the others alone."""
        waiting = [stream for stream in streams if stream.pending]
        if not waiting:
            return streams
        others = [stream for stream in streams if not stream.pending]
        return [*others, self._exchange(waiting, _why_shuffled(waiting))]

    def _meet(self, streams: list[_Stream], node: Node) -> list[_Stream]:
        """Bring all streams into one stage, which alone owns the state of the following step."""
        streams = self._together(streams)
        if len(streams) == 1 or all(stream.pending for stream in streams):
            return self._shuffle(streams)
        assert isinstance(node, StepNode)
        why = (
            f"Keyed streams meet here, each by the key it has: '{node.step.step_name}' keeps "
            f"one state per key."
        )
        return [self._exchange(streams, why)]

    def _together(self, streams: list[_Stream]) -> list[_Stream]:
        """Join branches of one stage in the same way before it.

        So their events keep the order that they had before their stream split.
        """
        groups: dict[tuple[int, Node | None, int | None], list[_Stream]] = {}
        for stream in streams:
            way = self._head(stream.stage), stream.pending, stream.side
            groups.setdefault(way, []).append(stream)
        return [self._joined(group) if len(group) > 1 else group[0] for group in groups.values()]

    def _head(self, stage: _Open) -> int:
        while isinstance(stage.entry, BranchEntry):
            stage = self._opened[stage.entry.stages[0]]
        return stage.id

    def _joined(self, streams: list[_Stream]) -> _Stream:
        stages = [stream.stage for stream in streams]
        why = f"Branches of stage {self._head(stages[0])} meet here, each event in its turn."
        joined = self._open(BranchEntry(tuple(each.id for each in stages)), stages[0].level, why)
        for each in stages:
            self._exits[each.id] = ToBranches((joined.id,))
        return replace(streams[0], stage=joined)

    def _exchange(self, streams: list[_Stream], why: str) -> _Stream:
        streams = self._together(streams)
        level = 1 + max(stream.stage.level for stream in streams)
        following = self._open(ExchangeEntry(), level, why)
        for stream in streams:
            key = stream.pending
            extractor = key.extractor if isinstance(key, KeyByNode) else None
            self._exits[stream.stage.id] = ToExchange(
                following.id, extractor, keeps_key=key is None, side=stream.side
            )
        return _Stream(following)


def _sink_numbers(root: Node) -> dict[Node, tuple[int, ...]]:
    """Return the numbers of each end's sinks, as ``number_sinks`` lists them."""
    numbers: dict[Node, tuple[int, ...]] = {}
    first = 0
    for node in sinks_of(root):
        numbers[node] = tuple(range(first, first + len(node.sinks)))
        first += len(node.sinks)
    return numbers


def _is_side_of_join(node: Node) -> TypeGuard[StepNode]:
    """Return whether the step only marks events with their side of a join."""
    return isinstance(node, StepNode) and isinstance(node.step, Step) and node.step.side is not None


def _reasons_of_branches(stage: int, number: int, split: Branch[Any] | None) -> list[str]:
    if split is None:
        return [f"It gets all events of stage {stage}, as others do."] * number
    return [
        f"It gets the events of stage {stage} for which '{split.step_name}' is {is_true}."
        for is_true in ("true", "false")
    ]


def _why_shuffled(streams: list[_Stream]) -> str:
    keys = {
        f"key_by '{stream.pending.extractor.step_name}'"
        if isinstance(stream.pending, KeyByNode)
        else "collect()": None
        for stream in streams
    }
    if list(keys) == ["collect()"]:
        return "collect() brings every event to one place."
    return f"{' and '.join(keys)} brings the events of one key to one place."
