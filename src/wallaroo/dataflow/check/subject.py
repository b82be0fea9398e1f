"""The subject of the rules: the graph's nodes in the user's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from wallaroo.dataflow.graph.walk import consumers_of
from wallaroo.errors import Problem
from wallaroo.steps.kinds import Decoder, Encoder, KeyExtractor, Step


@dataclass(frozen=True, slots=True)
class Subject:
    """One graph under examination: ``nodes`` holds each node once, sources first."""

    application: Any
    root: Node
    place: str
    nodes: tuple[Node, ...]
    # the application's own serializer, which may pack what pickle cannot
    serialize: Callable[[Any], bytes] | None = None
    dead_letters: Any = None  # a sink configuration; LATER if the run may add one
    after: Mapping[Node, Sequence[Node]] = field(default_factory=dict)  # by node

    @property
    def title(self) -> str:
        """Return the application's title in problems."""
        return f"application '{self.application}'"

    def problem(self, what: str, fix: str) -> Problem:
        return Problem(self.title, self.place, what, fix)

    def of(self, kind: type[Any]) -> Iterator[Any]:
        """Return the nodes of one kind."""
        return (node for node in self.nodes if isinstance(node, kind))

    def is_branched(self, node: Node) -> bool:
        """Return whether the stream splits after a node."""
        return isinstance(node, BranchNode) or len(self.after[node]) > 1


NAME_MAX = 60  # a longer repr is less clear than the class's name
LATER = object()  # the dead-letter sink is decided when the application is run

Rule = Callable[[Subject], Iterator[Problem]]


def subject_of(
    application: Any,
    root: Node,
    place: str,
    serialize: Callable[[Any], bytes] | None,
    dead_letters: Any = LATER,
) -> Subject:
    """Prepare a graph for the rules."""
    after = consumers_of(root)
    return Subject(application, root, place, tuple(after), serialize, dead_letters, after)


def name_of(thing: Any) -> str:
    """Return a user-facing name: that of a step, function or class, else a short repr."""
    if isinstance(thing, Step):
        return str(thing.step_name)
    name = getattr(thing, "__name__", None) or repr(thing).strip("'")
    return str(name) if len(name) <= NAME_MAX else type(thing).__name__


def title_of(node: Node) -> str:
    """Return a node's title in problems."""
    match node:
        case SourceNode():
            return f"source '{node.name}'"
        case StepNode():
            return f"step '{name_of(node.step)}'"
        case KeyByNode():
            return f"key_by '{name_of(node.extractor)}'"
        case CollectNode():
            return "collect()"
        case MergeNode():
            return "merge()"
        case BranchNode():
            return f"branch '{name_of(node.step)}'"
        case SideNode():
            return f"{title_of(node.upstream)} where {'true' if node.is_true else 'false'}"
        case EndsNode():
            return "application"
        case SinkNode():
            return "to_sink()"


def problem_at(node: Node, what: str, fix: str) -> Problem:
    return Problem(title_of(node), node.place, what, fix)


def configs_of(node: Node) -> tuple[Any, ...]:
    """Return a node's configurations of sources and sinks."""
    match node:
        case SourceNode():
            return (node.config,)
        case SinkNode():
            return tuple(node.sinks)
    return ()


@dataclass(frozen=True, slots=True)
class Used:
    """A use of a step; problems call it ``title``."""

    title: str
    place: str
    step: Step

    def problem(self, what: str, fix: str) -> Problem:
        return Problem(self.title, self.place, what, fix)


def used_steps(subject: Subject) -> Iterator[Used]:
    """Yield every step, with decoders and encoders, each once."""
    seen: set[int] = set()
    for used in _all_used(subject):
        if id(used.step) not in seen:
            seen.add(id(used.step))
            yield used


def _all_used(subject: Subject) -> Iterator[Used]:
    for node in subject.nodes:
        if isinstance(node, SourceNode) and isinstance(
            decoder := getattr(node.config, "decoder", None), Decoder
        ):
            yield Used(f"decoder '{decoder.step_name}'", decoder.place, decoder)
        elif isinstance(node, StepNode | BranchNode) and isinstance(node.step, Step):
            yield Used(title_of(node), node.step.place or node.place, node.step)
        elif isinstance(node, KeyByNode) and isinstance(node.extractor, KeyExtractor):
            yield Used(title_of(node), node.extractor.place or node.place, node.extractor)
        elif isinstance(node, SinkNode):
            for config in node.sinks:
                if isinstance(encoder := getattr(config, "encoder", None), Encoder):
                    yield Used(f"encoder '{encoder.step_name}'", encoder.place, encoder)
