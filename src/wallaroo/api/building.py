"""Construction of an application: its pipelines are checked and planned.

Where it runs: driver.  It is loaded when an application is built, so that ``import wallaroo``,
which every worker pays for, loads no checks and no planner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from json import dumps
from typing import Any

from wallaroo.api.discarded import discarded
from wallaroo.api.pipeline import Pipeline
from wallaroo.api.serialization import Hooks
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.dataflow.check.dead_letters import missing_sink
from wallaroo.dataflow.check.run import check
from wallaroo.dataflow.check.subject import LATER
from wallaroo.dataflow.graph.nodes import EndsNode, Node, SinkNode
from wallaroo.dataflow.plan import build
from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.sinks.interface import SinkConfig
from wallaroo.sinks.wrapped_encoder import AS_IT_IS, WrappedEncoder
from wallaroo.steps.kinds import Encoder

# fields of a dead letter: the failed event and its context
FIELDS = (
    "application",
    "step",
    "kind",
    "place",
    "batch",
    "source",
    "record",
    "key",
    "about",
    "event",
    "frame_hex",
    "frame_bytes",
    "event_pickle",
    "error",
    "traceback",
)
_missing_dead_letters: ContextVar[Any] = ContextVar("_missing_dead_letters", default=None)


@contextmanager
def dead_letters_come_later() -> Iterator[None]:
    """Defer the check for a dead-letter sink to the runner."""
    token = _missing_dead_letters.set(LATER)
    try:
        yield
    finally:
        _missing_dead_letters.reset(token)


def checked_plan(
    name: Any,
    pipelines: tuple[Any, ...],
    place: str,
    hooks: Hooks | None,
    dead_letters: SinkConfig | None,
) -> tuple[Node, Plan]:
    """Return the graph of closed pipelines and its plan.  Raises WallarooParameterError."""
    if isinstance(name, Pipeline):
        what = f"build_application got {name!r} as the application's name."
        fix = 'The name comes first: build_application("My application", pipeline).'
        raise WallarooParameterError(Problem("the application", place, what, fix))
    for each in pipelines:
        if not isinstance(each, Pipeline):
            what = f"build_application got {each!r} instead of a pipeline."
            fix = "Give it what to_sink() returned."
            raise WallarooParameterError(Problem(f"application '{name}'", place, what, fix))
    ends = tuple(each.node for each in pipelines)
    root = ends[0] if len(ends) == 1 else EndsNode(ends, place)
    missing = _missing_dead_letters.get()
    check(
        name,
        _with_sink(root, dead_letters),
        place,
        hooks,
        missing if dead_letters is None else dead_letters,
    )
    unused = tuple(discarded(root))
    if unused:
        raise WallarooParameterError(*unused)
    letters = None if dead_letters is None else _in_lines(dead_letters)
    return root, build.build_plan(name, root, hooks, letters)


def with_dead_letters(plan: Plan, sink_config: SinkConfig) -> Plan:
    """Return the plan with this sink for failed events."""
    return build.with_dead_letters(plan, _in_lines(sink_config))


def check_dead_letters(plan: Plan) -> None:
    """Raise WallarooParameterError if a step writes dead letters and there is no sink for them."""
    if plan.dead_letters is None:
        problems = tuple(missing_sink(plan.steps))
        if problems:
            raise WallarooParameterError(*problems)


def _in_lines(config: SinkConfig) -> SinkConfig:
    """Return the sink with everything that it needs to write dead letters as JSON.

    The form is set to "raw", or an encoder is added, if the sink would append a second newline; an
    encoder is added if it would serialize the letter itself as a message or a row.  Raises
    WallarooParameterError if letters would replace others, or no column is a field of them.
    """
    encoder = config.encoder
    is_plain = isinstance(encoder, WrappedEncoder) and encoder.inner is AS_IT_IS
    if is_plain and getattr(config, "key", None):
        what = "It has key=, and no encoder: a dead letter would replace others with its key."
        fix = "Leave out key=, or give it an encoder that returns a row with the key's fields."
        raise WallarooParameterError(Problem(f"dead-letter sink '{config.label}'", "", what, fix))
    columns = getattr(config, "columns", None) if is_plain else None
    if columns is not None:
        return replace(config, encoder=_row_encoder(config, columns))  # type: ignore[type-var]  # a configuration is a dataclass
    is_rolling = config.kind == "rolling" and config.encoder is None  # it writes lines
    if is_rolling or (is_plain and not config.takes_rows):
        return replace(config, encoder=Encoder(dumps, "dead letters"))  # type: ignore[type-var]  # a configuration is a dataclass
    is_doubled = (
        isinstance(config, FileSinkConfig) and config.form == "lines" and config.encoder is None
    )
    return replace(config, form="raw") if is_doubled else config  # type: ignore[type-var]  # a FileSinkConfig is a dataclass


def _row_encoder(config: SinkConfig, columns: Iterable[str]) -> Encoder[dict[str, Any]]:
    """Return the encoder of a letter as a row: the fields with the names of the columns, or None.

    The record's place, and all values of text columns, become text.
    """
    names = tuple(columns)
    if not set(names) & set(FIELDS):
        what = f"None of its columns ({', '.join(names)}) is a field of a dead letter."
        fix = f"Name some of {', '.join(FIELDS)}, or give it an encoder."
        raise WallarooParameterError(Problem(f"dead-letter sink '{config.label}'", "", what, fix))
    kinds = columns if isinstance(columns, Mapping) else {}
    texts = {name for name, kind in kinds.items() if str(kind) == "string"}

    def row(letter: dict[str, Any]) -> tuple[Any, ...]:
        letter = {**letter, "record": dumps(letter["record"])} if "record" in letter else letter
        return tuple(
            str(letter[name]) if name in texts and name in letter else letter.get(name)
            for name in names
        )

    return Encoder(row, "dead letters")


def _with_sink(root: Node, dead_letters: Any) -> Node:
    """Return the graph with the dead-letter sink as one more sink, for the checks."""
    if not isinstance(dead_letters, SinkConfig):
        return root
    if isinstance(root, EndsNode):
        first, *rest = root.ends
        return replace(root, ends=(_with_sink(first, dead_letters), *rest))
    if isinstance(root, SinkNode) and root.sinks:
        return replace(root, sinks=(*root.sinks, dead_letters))
    return root
