"""How an application will run: stages between shuffles, as frozen values that travel to every
worker.

Where it runs: pure.

Invariants of a plan:

* A *stage* is a straight run of steps with one entry and one exit.  Its entry is a source, an
  exchange, or the stage whose branch it is; its exit is an exchange, sinks, or branches.  Every
  source and every exchange feeds exactly one stage: ``stages[i].id == i``.
* The branches of a stage are on its level, and come after it: nothing is packed between them, and
  events keep their order.  Where several stages go on in one branch, they are branches of one
  stage themselves.
  ``Plan.head_of`` is the stage at the top of such a tree, which is fed; one event's time is that
  of all of its tree.
* An *exchange* is named by the stage after it.  Several stages may exit into one exchange (a
  merge); each has its own key extractor.
* ``level`` is 0 for source stages and one more than the deepest stage before it for the others.
  The stages of one level run as one Spark stage; a block for a stage of a later level passes
  through the levels between unchanged.
* After an exchange every event comes with its key.  The key was extracted before the
  exchange, once, and travels with the event.
* A merge without a shuffle after it is not a stage: the steps after it are copied into each of
  the merged stages.  State steps are never copied: where keyed streams meet before a state
  step, each leaves through an exchange that ``keeps_key``.
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

from wallaroo.steps import Branch, Decoder, Encoder, EventTime, KeyExtractor, Step
from wallaroo.windows.step import WindowStep

KEY_GROUPS_DEFAULT = 128
# what a step that keeps ordered entries has in the step table besides its state
ENTRY_KINDS = ("entries", "due", "due in processing time", "expiry")


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A stage fed by a source: it reads frames from the source's spool and decodes them."""

    source: int  # index into Plan.sources


@dataclass(frozen=True, slots=True)
class ExchangeEntry:
    """A stage fed by a shuffle.

    Several stages may feed it, raw ones among them: a block says which stage produced it, and that
    stage's exit and source say whether and with which decoder the block's frames are decoded again.
    """


@dataclass(frozen=True, slots=True)
class BranchEntry:
    """A stage fed by another one of its level, event by event; by several where branches of one
    stream meet again.
    """

    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToExchange:
    """Leave through a shuffle: extract the key, route by its key group."""

    stage: int  # the stage after the shuffle
    # None: collect(), everything has COLLECT_KEY; or keeps_key
    extractor: KeyExtractor[Any, Any] | None
    # ship the undecoded frame instead of the event (a pure decoder comes before)
    is_raw: bool = False
    # route by the key that the event came with (merged keyed streams meet before a state step)
    keeps_key: bool = False
    # on arrival, events say that they are of this side of a join
    side: int | None = None
    # the step after the shuffle, if events are added up for it before (``engine.adding_up``)
    added_up: WindowStep[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToSinks:
    """Leave through every one of these sinks."""

    sinks: tuple[int, ...]  # indexes into Plan.sinks


@dataclass(frozen=True, slots=True)
class ToBranches:
    """Go on in other stages of the same level.

    With a ``split`` there are two: each event goes to the first one where the predicate is true,
    else to the second one.  Without, every event goes to all of them.
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
        """Names of its state steps, in order."""
        return tuple(step.step_name for step in self.steps if step.is_stateful)


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """One source: ``pipeline`` is source()'s name, ``config`` its configuration, whose own name is
    used on the command line.
    """

    pipeline: str
    config: Any
    decoder: Decoder[Any]


@dataclass(frozen=True, slots=True)
class SourceTime:
    """How a source's watermark is found."""

    delay_ns: int = 0
    idle_after_ns: int | None = None
    is_receipt: bool = True  # its events have no time but that of their receipt
    # its events bring their times along; how far one may be ahead of its receipt
    is_carried: bool = False
    max_ahead_ns: int = 0


SourceTimes = tuple[tuple[str, SourceTime], ...]  # by number: the source's name, and how


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
    """One sink, and what turns events into its bytes."""

    name: str  # unique: its id, from ``plan.sink_ids``
    config: Any
    encoder: Encoder[Any] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole application; it travels to every worker."""

    application: str
    stages: tuple[Stage, ...]
    sources: tuple[SourcePlan, ...]
    sinks: tuple[SinkPlan, ...]
    key_groups: int = KEY_GROUPS_DEFAULT
    # the application module's own (serialize, deserialize), as in Wallaroo
    serializer: tuple[Any, Any] | None = None
    dead_letters: int | None = None  # index of the sink for events that failed; always the last one
    # sentences for `wallaroo explain`: what the planner left out, and why
    notes: tuple[str, ...] = ()

    # what follows from these, found once: every task of every batch asks for it
    has_time: bool = field(init=False, compare=False)  # events travel with times
    has_end: bool = field(init=False, compare=False)  # something is done when input has ended
    has_blocks: bool = field(init=False, compare=False)  # a step takes rows by the block
    # how the watermark of each source is found
    source_times: SourceTimes = field(init=False, compare=False)
    # how far the watermark of each stage is behind that of the sources: as late as results of the
    # steps before it may come after their times
    holds_ns: dict[int, int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        steps = [step for stage in self.stages for step in stage.steps]
        for name, value in (
            ("has_time", any(step.uses_time or step.keeps_entries for step in steps)),
            ("has_end", any(step.keeps_entries or step.acts_at_end for step in steps)),
            ("has_blocks", any(step.takes_blocks for step in self.steps)),
            ("source_times", _source_times(self)),
            ("holds_ns", _holds_ns(self.stages)),
        ):
            object.__setattr__(self, name, value)

    @property
    def state_steps(self) -> tuple[str, ...]:
        """Names of all state steps, in order."""
        return tuple(name for stage in self.stages for name in stage.state_steps)

    @property
    def step_names(self) -> tuple[str, ...]:
        """Names for the step table: of all state steps, and of their ordered entries."""
        steps = [step for stage in self.stages for step in stage.steps if step.is_stateful]
        names = [
            f"{step.step_name}: {kind}"
            for step in steps
            if step.keeps_entries
            for kind in ENTRY_KINDS
        ]
        return (*self.state_steps, *names)

    def head_of(self, stage: Stage) -> Stage:
        """The stage that is fed what reaches a branch; any other stage itself."""
        while isinstance(stage.entry, BranchEntry):
            stage = self.stages[stage.entry.stages[0]]
        return stage

    def source_of(self, stage: Stage) -> SourcePlan | None:
        """The source that a stage, or the stage whose branch it is, reads; None after a shuffle."""
        entry = self.head_of(stage).entry
        return self.sources[entry.source] if isinstance(entry, SourceEntry) else None

    @property
    def state_level(self) -> int:
        """The first level with a state step; -1: none."""
        return min((stage.level for stage in self.stages if stage.state_steps), default=-1)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step with its decoders, key extractors and encoders, each once, in the order events
        meet them.
        """
        found: list[Step] = [source.decoder for source in self.sources]
        for stage in self.stages:
            found += stage.steps
            last = last_step_of(stage)
            if last is not None:
                found.append(last)
        found += [sink.encoder for sink in self.sinks if sink.encoder is not None]
        return tuple({id(step): step for step in found}.values())

    @property
    def levels(self) -> int:
        """How many Spark stages one batch has."""
        return 1 + max(stage.level for stage in self.stages)


def _source_times(plan: Plan) -> SourceTimes:
    found = {
        stage.entry.source: _time_of(plan.sources[stage.entry.source], step)
        for stage in plan.stages
        if isinstance(stage.entry, SourceEntry)
        for step in stage.steps
        if isinstance(step, EventTime)
    }
    return tuple(
        (source.config.name, found.get(number, SourceTime()))
        for number, source in enumerate(plan.sources)
    )


def _holds_ns(stages: Iterable[Stage]) -> dict[int, int]:
    holds: dict[int, int] = {}
    for stage in sorted(stages, key=lambda stage: (stage.level, stage.id)):
        own = holds.setdefault(stage.id, 0) + sum(step.holds_ns for step in stage.steps)
        for following in following_of(stage):
            holds[following] = max(holds.get(following, 0), own)
    return holds


def following_of(stage: Stage) -> tuple[int, ...]:
    """The stages that a stage gives its events to."""
    leave = stage.exit
    if isinstance(leave, ToExchange):
        return (leave.stage,)
    return leave.stages if isinstance(leave, ToBranches) else ()


def branches_of(stage: Stage) -> tuple[int, ...]:
    """The stages of its level that a stage gives its events to."""
    return stage.exit.stages if isinstance(stage.exit, ToBranches) else ()


def last_step_of(stage: Stage) -> Step | None:
    """The step that says where an event goes when it leaves: a key extractor, or a predicate."""
    leave = stage.exit
    if isinstance(leave, ToExchange):
        return leave.extractor
    return leave.split if isinstance(leave, ToBranches) else None
