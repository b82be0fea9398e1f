"""The pipeline as the user wrote it, in frozen nodes.

Each node knows its upstream and the place where it was written.  The newest node is the pipeline:
``Pipeline`` wraps the last node, and every builder call creates a new one.  A node that is the
upstream of several others passes its events to each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from wallaroo.steps.kinds import KeyExtractor, Step


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SourceNode:
    """The beginning of a stream.

    A configuration without a name, as in 2018, takes the node's.
    """

    name: str
    config: Any  # a source configuration ; checked by wallaroo.dataflow.check
    place: str

    def __post_init__(self) -> None:
        if is_dataclass(self.config) and getattr(self.config, "name", None) == "":
            object.__setattr__(self, "config", replace(self.config, name=self.name))  # type: ignore[type-var]  # no class has a name


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class StepNode:
    """A computation after ``upstream``, with or without state."""

    upstream: Node
    step: (
        Step | Any
    )  # anything a user passed to .to(); wallaroo.dataflow.check rejects all but steps
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class KeyByNode:
    """Assignment of keys: every event after it has a key."""

    upstream: Node
    extractor: KeyExtractor[Any, Any] | Any
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class CollectNode:
    """Assignment of one key: every event after it has the same."""

    upstream: Node
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class MergeNode:
    """Two streams that continue as one."""

    left: Node
    right: Node
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class BranchNode:
    """A stream that splits in two by a predicate."""

    upstream: Node
    step: Step | Any  # the user's argument; wallaroo.dataflow.check rejects all but functions
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SideNode:
    """One side of a branch.

    It has the events for which its predicate is true, or the others.
    """

    upstream: BranchNode
    is_true: bool
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class SinkNode:
    """The end of a pipeline.

    Every event is sent to all of its sinks.
    """

    upstream: Node
    sinks: tuple[Any, ...]  # sink configurations
    place: str


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class EndsNode:
    """The common end of an application's several closed pipelines."""

    ends: tuple[Node, ...]
    place: str


Node = (
    SourceNode
    | StepNode
    | KeyByNode
    | CollectNode
    | MergeNode
    | BranchNode
    | SideNode
    | SinkNode
    | EndsNode
)
