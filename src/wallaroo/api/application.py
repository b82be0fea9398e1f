"""``build_application``: a closed pipeline, checked and planned.

Where it runs: driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from wallaroo.api.pipeline import Pipeline
from wallaroo.api.serialization import Hooks, hooks_of
from wallaroo.check.dead_letters import missing_sink
from wallaroo.check.run import check
from wallaroo.check.subject import LATER
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.graph.nodes import EndsNode, Node, SinkNode
from wallaroo.graph.render import mermaid
from wallaroo.plan.build import build_plan, with_dead_letters
from wallaroo.plan.model import Plan
from wallaroo.sinks.file.config import FileSinkConfig
from wallaroo.sinks.interface import SinkConfig
from wallaroo.user_frames import user_frame, user_place


@dataclass(frozen=True, slots=True, eq=False)
class Application:
    """What ``application_setup`` returns: the graph as written, and the plan of how it runs."""

    name: str
    root: Node
    plan: Plan
    serializer: Hooks | None = None  # the application module's own (serialize, deserialize)

    def _repr_markdown_(self) -> str:
        """The graph as a diagram, for notebooks."""
        return f"```mermaid\n{mermaid(self)}```\n"

    def with_hooks_of(self, module: Mapping[str, Any]) -> Application:
        """The same application with ``serialize`` and ``deserialize`` of ``module`` (its
        ``vars()``), if it defines both.
        """
        hooks = hooks_of(module)
        if hooks is None:
            return self
        return replace(self, serializer=hooks, plan=replace(self.plan, serializer=hooks))

    def with_dead_letters(self, sink_config: SinkConfig) -> Application:
        """The same application with this sink for events that failed, in place of the one it was
        built with.
        """
        return replace(self, plan=with_dead_letters(self.plan, _in_lines(sink_config)))

    def check_dead_letters(self) -> None:
        """Raise WallarooParameterError where a step writes dead letters and there is no sink for
        them.
        """
        if self.plan.dead_letters is None:
            problems = tuple(missing_sink(self.plan.steps))
            if problems:
                raise WallarooParameterError(*problems)


_missing_dead_letters: ContextVar[Any] = ContextVar("_missing_dead_letters", default=None)


@contextmanager
def dead_letters_come_later() -> Iterator[None]:
    """Let applications be built without the dead-letter sink they need: what runs them checks
    (``check_dead_letters``).
    """
    token = _missing_dead_letters.set(LATER)
    try:
        yield
    finally:
        _missing_dead_letters.reset(token)


def _in_lines(config: SinkConfig) -> SinkConfig:
    """Dead letters end with a newline of their own."""
    is_doubled = (
        isinstance(config, FileSinkConfig) and config.form == "lines" and config.encoder is None
    )
    return replace(config, form="raw") if is_doubled else config  # type: ignore[type-var]  # a FileSinkConfig is a dataclass


def build_application(
    application_name: str,
    pipeline: Pipeline[Any],
    *more: Pipeline[Any],
    dead_letters: SinkConfig | None = None,
) -> Application:
    """Check a closed pipeline, or several, and plan how they run: as one application, whose
    batches are committed as a whole.

    ``dead_letters`` is the sink for events for which a step with ``on_error="dead-letter"`` raised:
    it gets a JSON object per line, or what its own encoder makes of the dict. Raises
    WallarooParameterError, a PipelineError, with *all* problems found, each with its step,
    ``file:line``, and fix.
    """
    given: tuple[Any, ...] = (pipeline, *more)
    for each in given:
        if not isinstance(each, Pipeline):
            what = f"build_application got {each!r} instead of a pipeline."
            fix = "Give it what to_sink() returned."
            raise WallarooParameterError(
                Problem(f"application '{application_name}'", user_place(), what, fix)
            )
    frame = user_frame()
    hooks = hooks_of(frame.f_globals) if frame else None
    ends = tuple(each.node for each in given)
    root = ends[0] if len(ends) == 1 else EndsNode(ends, user_place())
    missing = _missing_dead_letters.get()
    check(
        application_name,
        _with_sink(root, dead_letters),
        user_place(),
        hooks,
        missing if dead_letters is None else dead_letters,
    )
    letters = None if dead_letters is None else _in_lines(dead_letters)
    return Application(
        application_name, root, build_plan(application_name, root, hooks, letters), hooks
    )


def _with_sink(root: Node, dead_letters: Any) -> Node:
    """The graph as the checks see it: the dead-letter sink is one more sink, with a port and an
    encoder like any other.
    """
    if not isinstance(dead_letters, SinkConfig):
        return root
    if isinstance(root, EndsNode):
        first, *rest = root.ends
        return replace(root, ends=(_with_sink(first, dead_letters), *rest))
    if isinstance(root, SinkNode) and root.sinks:
        return replace(root, sinks=(*root.sinks, dead_letters))
    return root
