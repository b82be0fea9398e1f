"""The plan of an application: stages between shuffles.

Plans are frozen values that are sent to every worker.

Invariants of a plan:

* A *stage* is a straight run of steps with one entry and one exit.  Its entry is a source, an
  exchange, or the stage whose branch it is; its exit is an exchange, sinks, or branches.  Every
  source and every exchange feeds exactly one stage: ``stages[i].id == i``.
* The branches of a stage are on its level, and come after it: nothing is packed between them, and
  events keep their order.  If several stages continue in one branch, they are branches of one
  stage themselves.
  ``Plan.head_of`` is the root of such a tree, which is fed; an event's time is the same throughout
  its tree.
* An *exchange* is named by the stage after it.  Several stages may exit into one exchange (a
  merge); each has its own key extractor.
* ``level`` is 0 for source stages and one more than the deepest stage before it for the others.
  The stages of one level run as one Spark stage; a block for a stage of a later level passes
  through the levels between unchanged.
* After an exchange every event has its key, which was extracted once, before the exchange, and is
  sent with the event.
* A merge without a shuffle after it is not a stage: the steps after it are copied into each of
  the merged stages.  State steps are never copied: if keyed streams meet before a state step, each
  leaves through an exchange that ``keeps_key``.
* Only a stage after an exchange has state steps, and ``keeps_key`` exits.  Raw exits have an
  extractor, a pure decoder and no steps but ``EventTime``.  A branch is "after an exchange" if its
  head is.
* A state step's state belongs to (state step name, key).  State step names are unique within an
  application.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from wallaroo.steps.batching import LatestPerKey
from wallaroo.steps.kinds import Branch, Decoder, Encoder, EventTime, KeyExtractor, Step
from wallaroo.steps.state_versions import Evolution
from wallaroo.steps.windows.panes import are_stored_by_pane
from wallaroo.steps.windows.step import WindowStep

KEY_GROUPS_DEFAULT = 128
# suffixes of a step's ordered entries in the step table, besides its state
PANES = "panes"  # only for windows stored by pane
ENTRY_KINDS = (PANES, "entries", "due", "due in processing time", "expiry")


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A stage's entry from a source's spool, whose frames it decodes."""

    source: int  # index into Plan.sources


@dataclass(frozen=True, slots=True)
class ExchangeEntry:
    """A stage's entry from a shuffle.

    Several stages may feed it, raw ones among them: a block names the stage that produced it, and
    that stage's exit and source determine whether and with which decoder the block's frames are
    decoded again.
    """


@dataclass(frozen=True, slots=True)
class BranchEntry:
    """A stage's entry from another of its level.

    There are several if branches meet again.
    """

    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToExchange:
    """Exit through a shuffle: extract the key, route by its key group."""

    stage: int  # the stage after the shuffle
    # None: collect(), everything has COLLECT_KEY; or keeps_key
    extractor: KeyExtractor[Any, Any] | None
    # ship the undecoded frame instead of the event (a pure decoder comes before)
    is_raw: bool = False
    # route by the event's existing key (merged keyed streams meet before a state step)
    keeps_key: bool = False
    # on arrival, events are marked with this side of a join
    side: int | None = None
    # the step after the shuffle, if events are added up for it before it
    # (``engine.exchange.partial_aggregation``)
    pre_aggregated: WindowStep[Any, Any] | None = None
    # the step after the shuffle, if it needs only the last event of each key: earlier ones of a
    # block are dropped before it
    latest: LatestPerKey[Any] | None = None
    # rows leave as columns, with their times: the step after the shuffle joins rows
    keeps_rows: bool = False


@dataclass(frozen=True, slots=True)
class ToSinks:
    """Exit through every one of these sinks."""

    sinks: tuple[int, ...]  # indexes into Plan.sinks


@dataclass(frozen=True, slots=True)
class ToBranches:
    """Exit into other stages of the same level.

    With a ``split`` there are two: each event goes to the first if the predicate is true, else to
    the second. Otherwise every event goes to all of them.
    """

    stages: tuple[int, ...]
    split: Branch[Any] | None = None


COLLECT_KEY = "collect-key"
DEAD_LETTERS = "dead-letters"  # name of the sink for events that failed


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps that run fused, between one entry and one exit."""

    id: int
    level: int
    entry: SourceEntry | ExchangeEntry | BranchEntry
    steps: tuple[Step, ...]  # computations and state computations, in order
    exit: ToExchange | ToSinks | ToBranches
    why: str = ""  # one sentence for `wallaroo explain`: why this stage begins here

    @property
    def state_steps(self) -> tuple[str, ...]:
        """Return the names of its state steps, in order."""
        return tuple(step.step_name for step in self.steps if step.is_stateful)


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """One source; ``pipeline``: source()'s name, ``config``'s own is for the command line."""

    pipeline: str
    config: Any
    decoder: Decoder[Any]


@dataclass(frozen=True, slots=True)
class SourceTime:
    """Rule that determines a source's watermark."""

    delay_ns: int = 0
    idle_after_ns: int | None = None
    is_receipt: bool = True  # its events have only their receipt time
    is_carried: bool = False  # its events carry their own times
    max_ahead_ns: int = 0  # the most that an event may be ahead of its receipt


SourceTimes = tuple[tuple[str, SourceTime], ...]  # by number: the source's name, and its rule


def _time_of(source: SourcePlan, step: EventTime[Any]) -> SourceTime:
    is_carried = step.extractor is None and getattr(source.config, "carries_times", False)
    return SourceTime(
        step.delay_ns,
        step.idle_after_ns,
        step.extractor is None and not is_carried,
        is_carried,
        step.max_ahead_ns,
    )


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """One sink, and the encoder of its events."""

    name: str  # unique: its id, from ``plan.sink_ids``
    config: Any
    encoder: Encoder[Any] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole application; it is sent to every worker."""

    application: str
    stages: tuple[Stage, ...]
    sources: tuple[SourcePlan, ...]
    sinks: tuple[SinkPlan, ...]
    key_groups: int = KEY_GROUPS_DEFAULT
    # the application module's own (serialize, deserialize), as in Wallaroo
    serializer: tuple[Any, Any] | None = None
    # values that ``application_setup`` set in the application's modules
    # (``user_code.setup_values``)
    setup_values: bytes = b""
    dead_letters: int | None = None  # index of the sink for events that failed; always the last one
    # sentences for `wallaroo explain`: the parts that the planner left out, and why
    notes: tuple[str, ...] = ()
    # sentences for `wallaroo explain` and a run's log: what may depend on how batches are cut
    warnings: tuple[str, ...] = ()
    # by state step, if a checkpoint may hold objects of an earlier class
    evolution: dict[str, Evolution] = field(default_factory=dict, compare=False)
    # state steps that mark times of last use, because a checkpoint has others (`plan.timing`)
    marked_uses: frozenset[str] = frozenset()

    # derived from these and computed once, as every task of every batch needs them
    has_time: bool = field(init=False, compare=False)  # events carry times
    has_end: bool = field(init=False, compare=False)  # a step acts when input has ended
    has_blocks: bool = field(init=False, compare=False)  # a step accepts rows by the block
    # the rule of each source's watermark
    source_times: SourceTimes = field(init=False, compare=False)
    # how far each stage's watermark lags the sources': results of earlier steps may be later than
    # their times by this much
    watermark_lags_ns: dict[int, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        steps = [step for stage in self.stages for step in stage.steps]
        marks = any(sink.config.needs_time for sink in self.sinks)
        for name, value in (
            ("has_time", any(step.uses_time or step.keeps_entries for step in steps)),
            ("has_end", marks or any(step.keeps_entries or step.acts_at_end for step in steps)),
            ("has_blocks", any(step.takes_blocks for step in self.steps)),
            ("source_times", _source_times(self)),
            ("watermark_lags_ns", _watermark_lags_ns(self.stages)),
        ):
            object.__setattr__(self, name, value)

    @property
    def output_lag_ns(self) -> int:
        """Return how far output times may be behind the watermark of the sources."""
        lags_ns = self.watermark_lags_ns
        return max((lags_ns[stage.id] + _own_lag_ns(stage) for stage in self.stages), default=0)

    @property
    def state_steps(self) -> tuple[str, ...]:
        """Return the names of all state steps, in order."""
        return tuple(name for stage in self.stages for name in stage.state_steps)

    @property
    def step_names(self) -> tuple[str, ...]:
        """Return the names for the step table: all state steps and their ordered entries."""
        steps = [step for stage in self.stages for step in stage.steps if step.is_stateful]
        names = [
            f"{step.step_name}: {kind}"
            for step in steps
            if step.keeps_entries
            for kind in ENTRY_KINDS
            if kind != PANES or are_stored_by_pane(step.kept_for)
        ]
        return (*self.state_steps, *names)

    def head_of(self, stage: Stage) -> Stage:
        """Return the stage that is fed the events of a branch; any other stage itself."""
        while isinstance(stage.entry, BranchEntry):
            stage = self.stages[stage.entry.stages[0]]
        return stage

    def source_of(self, stage: Stage) -> SourcePlan | None:
        """Return the source of a stage or of the stage it branches off; None after a shuffle."""
        entry = self.head_of(stage).entry
        return self.sources[entry.source] if isinstance(entry, SourceEntry) else None

    @property
    def state_level(self) -> int:
        """Return the first level with a state step; -1 if there is none."""
        return min((stage.level for stage in self.stages if stage.state_steps), default=-1)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return steps, decoders, extractors and encoders, once each, in events' order."""
        steps: list[Step] = [source.decoder for source in self.sources]
        for stage in self.stages:
            steps += stage.steps
            last = last_step_of(stage)
            if last is not None:
                steps.append(last)
        steps += [sink.encoder for sink in self.sinks if sink.encoder is not None]
        return tuple({id(step): step for step in steps}.values())

    @property
    def levels(self) -> int:
        """Return the number of Spark stages of one batch."""
        return 1 + max(stage.level for stage in self.stages)


def _source_times(plan: Plan) -> SourceTimes:
    times = {
        stage.entry.source: _time_of(plan.sources[stage.entry.source], step)
        for stage in plan.stages
        if isinstance(stage.entry, SourceEntry)
        for step in stage.steps
        if isinstance(step, EventTime)
    }
    return tuple(
        (source.config.name, times.get(number, SourceTime()))
        for number, source in enumerate(plan.sources)
    )


def _own_lag_ns(stage: Stage) -> int:
    """Return how far a stage's steps let the watermark get ahead of their results."""
    return sum(step.watermark_lag_ns for step in stage.steps)


def _watermark_lags_ns(stages: Iterable[Stage]) -> dict[int, int]:
    holds: dict[int, int] = {}
    for stage in sorted(stages, key=lambda stage: (stage.level, stage.id)):
        own = holds.setdefault(stage.id, 0) + _own_lag_ns(stage)
        for following in following_of(stage):
            holds[following] = max(holds.get(following, 0), own)
    return holds


def following_of(stage: Stage) -> tuple[int, ...]:
    """Return the stages that a stage passes its events to."""
    leave = stage.exit
    if isinstance(leave, ToExchange):
        return (leave.stage,)
    return leave.stages if isinstance(leave, ToBranches) else ()


def branches_of(stage: Stage) -> tuple[int, ...]:
    """Return the stages of its level that a stage passes its events to."""
    return stage.exit.stages if isinstance(stage.exit, ToBranches) else ()


def sinks_of(stage: Stage) -> tuple[int, ...]:
    """Return the indexes of the sinks that a stage writes to."""
    return stage.exit.sinks if isinstance(stage.exit, ToSinks) else ()


def last_step_of(stage: Stage) -> Step | None:
    """Return the step that routes an event as it leaves: a key extractor, or a predicate."""
    leave = stage.exit
    if isinstance(leave, ToExchange):
        return leave.extractor
    return leave.split if isinstance(leave, ToBranches) else None
