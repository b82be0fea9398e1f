"""What the user meant: the pipeline as frozen nodes, each knowing its upstream and where it was
written.

Where it runs: pure.  The newest node is the pipeline: ``Pipeline`` wraps the last node, and every
builder call makes a new one.  A node that is the upstream of several others gives its events to
each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wallaroo.steps import KeyExtractor, Step


@dataclass(frozen=True, slots=True, eq=False)
class SourceNode:
    """Where a stream begins."""

    name: str
    config: Any  # a source configuration ; checked by wallaroo.check
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class StepNode:
    """A computation after ``upstream``, with or without state."""

    upstream: Node
    step: Step | Any  # anything a user passed to .to(); wallaroo.check rejects what is not a step
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class KeyByNode:
    """Every event after it has a key."""

    upstream: Node
    extractor: KeyExtractor[Any, Any] | Any
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class CollectNode:
    """Every event after it has the same key."""

    upstream: Node
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class MergeNode:
    """Two streams that go on as one."""

    left: Node
    right: Node
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class BranchNode:
    """A stream that parts in two by a predicate."""

    upstream: Node
    step: Step | Any  # what the user gave; wallaroo.check rejects what is not a function
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class SideNode:
    """One side of a branch: the events for which its predicate is true, or the others."""

    upstream: BranchNode
    is_true: bool
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class SinkNode:
    """The end of a pipeline: every event goes to all of its sinks."""

    upstream: Node
    sinks: tuple[Any, ...]  # sink configurations
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class EndsNode:
    """What an application of several closed pipelines ends in."""

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
