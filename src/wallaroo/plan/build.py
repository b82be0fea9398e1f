"""From the graph to the plan: passes in a tuple, each a plain function from sketch to sketch.

Where it runs: pure.

The planner cuts the graph into stages at its shuffles.  While it walks from the sources to the
sinks, it keeps for every node the *open* stages that reach it, and whether they still have a
shuffle to go through (``pending``): a shuffle begins a stage only when a step or a sink comes
after it, so that sides merged after their ``key_by`` meet in one stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from wallaroo.graph.nodes import (
    CollectNode,
    KeyByNode,
    MergeNode,
    Node,
    SinkNode,
    SourceNode,
    StepNode,
)
from wallaroo.graph.walk import idle_key_bys, is_state_step, sink_of, sources_of, walk
from wallaroo.plan.model import (
    DEAD_LETTERS,
    ExchangeEntry,
    Plan,
    SinkPlan,
    SourceEntry,
    SourcePlan,
    Stage,
    ToExchange,
    ToSinks,
)
from wallaroo.steps import EventTime, Step
from wallaroo.windows.step import WindowStep


@dataclass(frozen=True, slots=True)
class Sketch:
    """A plan in the making; ``idle`` are the key_by nodes to leave out."""

    root: Node
    plan: Plan
    idle: dict[KeyByNode, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Open:
    """A stage whose exit is not known yet."""

    id: int
    entry: SourceEntry | ExchangeEntry
    level: int
    why: str
    steps: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class _Branch:
    """An open stage on its way to a node; ``pending`` is the key_by or collect before the node
    that is not a shuffle yet.
    """

    stage: _Open
    pending: KeyByNode | CollectNode | None = None
    side: int | None = None  # of a join, which events are given after that shuffle


def number_sources(sketch: Sketch) -> Sketch:
    """List the sources, left to right."""
    sources = tuple(
        SourcePlan(node.name, node.config, node.config.decoder) for node in sources_of(sketch.root)
    )
    return replace(sketch, plan=replace(sketch.plan, sources=sources))


def number_sinks(sketch: Sketch) -> Sketch:
    """List the sinks, named by kind: ``tcp``, ``tcp-2``; the name stays the same when an address
    changes.
    """
    seen: dict[str, int] = {}
    sinks = []
    for config in sink_of(sketch.root).sinks:
        count = seen[config.kind] = seen.get(config.kind, 0) + 1
        name = config.kind if count == 1 else f"{config.kind}-{count}"
        sinks.append(SinkPlan(name, config, config.encoder))
    return replace(sketch, plan=replace(sketch.plan, sinks=tuple(sinks)))


def leave_out_idle_keys(sketch: Sketch) -> Sketch:
    """Find each key_by that no state step ever sees: it costs a shuffle and changes nothing."""
    idle = idle_key_bys(sketch.root)
    notes = tuple(
        f"key_by '{node.extractor.step_name}' shuffles nothing: {reason}."
        for node, reason in idle.items()
    )
    return replace(sketch, idle=idle, plan=replace(sketch.plan, notes=(*sketch.plan.notes, *notes)))


def cut_stages(sketch: Sketch) -> Sketch:
    """Cut the graph into stages at its shuffles."""
    return replace(sketch, plan=replace(sketch.plan, stages=_Cutter(sketch).cut()))


def add_up_before_shuffles(sketch: Sketch) -> Sketch:
    """Where windows come right after a shuffle, and their aggregation allows it, add events up
    where they are read: then a shuffle carries an accumulator per key and pane, not events.
    """
    plan = sketch.plan
    if plan.has_blocks:
        return sketch

    def changed(stage: Stage) -> Stage:
        leave = stage.exit
        if not isinstance(leave, ToExchange) or leave.keeps_key or leave.side is not None:
            return stage
        first = next(iter(plan.stages[leave.stage].steps), None)
        if not isinstance(first, WindowStep) or not first.adds_up:
            return stage
        return replace(stage, exit=replace(leave, added_up=first))

    return replace(sketch, plan=replace(plan, stages=tuple(map(changed, plan.stages))))


def ship_raw_frames(sketch: Sketch) -> Sketch:
    """Where only a decoder comes before a key_by, and perhaps ``with_event_time``, and the decoder
    is pure, ship undecoded frames: decoding twice is cheaper than pickling once.
    """
    plan = sketch.plan
    notes: dict[str, None] = {}

    def shipped(stage: Stage) -> Stage:
        leave = stage.exit
        if not all(isinstance(step, EventTime) for step in stage.steps):
            return stage
        if not isinstance(stage.entry, SourceEntry):
            return stage
        if not isinstance(leave, ToExchange) or leave.extractor is None or leave.added_up:
            return stage
        source = plan.sources[stage.entry.source]
        decoder = source.decoder
        if not source.config.has_plain_payloads or decoder.takes_blocks:
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


Pass = Callable[[Sketch], Sketch]
PASSES: tuple[Pass, ...] = (
    number_sources,
    number_sinks,
    leave_out_idle_keys,
    cut_stages,
    add_up_before_shuffles,
    ship_raw_frames,
)


def build_plan(
    application: str,
    root: Node,
    serializer: tuple[Any, Any] | None = None,
    dead_letters: Any = None,
) -> Plan:
    """Plan a graph that passed the checks (``wallaroo.check``); ``dead_letters`` is a sink
    configuration, or None.
    """
    sketch = Sketch(root, Plan(application, (), (), (), serializer=serializer))
    for run in PASSES:
        sketch = run(sketch)
    return sketch.plan if dead_letters is None else with_dead_letters(sketch.plan, dead_letters)


def with_dead_letters(plan: Plan, config: Any) -> Plan:
    """The same plan with ``config`` as its sink for events that failed, in place of the one it may
    have.
    """
    results = plan.sinks if plan.dead_letters is None else plan.sinks[: plan.dead_letters]
    sinks = (*results, SinkPlan(DEAD_LETTERS, config, config.encoder))
    return replace(plan, sinks=sinks, dead_letters=len(results))


class _Cutter:
    """One walk over the graph; ``branches`` holds what reaches each node."""

    def __init__(self, sketch: Sketch):
        self._sketch = sketch
        self._opened: list[_Open] = []
        self._exits: dict[int, ToExchange | ToSinks] = {}
        self._sources = 0

    def cut(self) -> tuple[Stage, ...]:
        branches: dict[Node, list[_Branch]] = {}
        for node in walk(self._sketch.root):
            branches[node] = self._through(node, branches)
        return tuple(
            Stage(open_.id, open_.level, open_.entry, open_.steps, self._exits[open_.id], open_.why)
            for open_ in self._opened
        )

    def _through(self, node: Node, branches: dict[Node, list[_Branch]]) -> list[_Branch]:
        if isinstance(node, SourceNode):
            return [_Branch(self._open_source(node))]
        if isinstance(node, MergeNode):
            return branches[node.left] + branches[node.right]
        arriving = branches[node.upstream]
        if isinstance(node, KeyByNode) and node in self._sketch.idle:
            return arriving
        if is_state_step(node):
            return self._step(node, self._meet(arriving, node))
        side = _side_of(node)
        if side is not None and all(branch.pending for branch in arriving):
            return [replace(branch, side=side) for branch in arriving]
        settled = self._shuffle(arriving)
        if isinstance(node, KeyByNode | CollectNode):
            return [_Branch(branch.stage, node) for branch in settled]
        if isinstance(node, SinkNode):
            return self._sinks(node, settled)
        return self._step(node, settled)

    def _open_source(self, node: SourceNode) -> _Open:
        index = self._sources
        self._sources += 1
        return self._open(
            SourceEntry(index), 0, f"It reads and decodes source '{node.config.name}'."
        )

    def _open(self, entry: SourceEntry | ExchangeEntry, level: int, why: str) -> _Open:
        opened = _Open(len(self._opened), entry, level, why)
        self._opened.append(opened)
        return opened

    def _step(self, node: Node, branches: list[_Branch]) -> list[_Branch]:
        assert isinstance(node, StepNode)
        for branch in branches:
            branch.stage.steps += (node.step,)
        return branches

    def _sinks(self, node: SinkNode, branches: list[_Branch]) -> list[_Branch]:
        for branch in branches:
            self._exits[branch.stage.id] = ToSinks(tuple(range(len(node.sinks))))
        return branches

    def _shuffle(self, branches: list[_Branch]) -> list[_Branch]:
        """Send the branches that have a shuffle pending through one, together; leave the others as
        they are.
        """
        waiting = [branch for branch in branches if branch.pending]
        if not waiting:
            return branches
        settled = [branch for branch in branches if not branch.pending]
        return [*settled, self._exchange(waiting, _why_shuffled(waiting))]

    def _meet(self, branches: list[_Branch], node: Node) -> list[_Branch]:
        """Bring all branches into one stage, which alone owns the state of the step that
        follows.
        """
        if len(branches) == 1 or all(branch.pending for branch in branches):
            return self._shuffle(branches)
        assert isinstance(node, StepNode)
        why = (
            f"Keyed streams meet here, each by the key it has: '{node.step.step_name}' keeps "
            f"one state per key."
        )
        return [self._exchange(branches, why)]

    def _exchange(self, branches: list[_Branch], why: str) -> _Branch:
        level = 1 + max(branch.stage.level for branch in branches)
        following = self._open(ExchangeEntry(), level, why)
        for branch in branches:
            key = branch.pending
            extractor = key.extractor if isinstance(key, KeyByNode) else None
            self._exits[branch.stage.id] = ToExchange(
                following.id, extractor, keeps_key=key is None, side=branch.side
            )
        return _Branch(following)


def _side_of(node: Node) -> int | None:
    """The side of a join that a step gives events, if it does that and nothing else."""
    return node.step.side if isinstance(node, StepNode) and isinstance(node.step, Step) else None


def _why_shuffled(branches: list[_Branch]) -> str:
    keys = {
        f"key_by '{branch.pending.extractor.step_name}'"
        if isinstance(branch.pending, KeyByNode)
        else "collect()": None
        for branch in branches
    }
    if list(keys) == ["collect()"]:
        return "collect() brings every event to one place."
    return f"{' and '.join(keys)} brings the events of one key to one place."
