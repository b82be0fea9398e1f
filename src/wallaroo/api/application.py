"""The built application: its graph as written, and its plan.

Where it runs: driver.  ``build_application`` returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wallaroo.api.pipeline import Pipeline
from wallaroo.api.serialization import Hooks, hooks_of
from wallaroo.dataflow.graph.nodes import Node
from wallaroo.sinks.interface import SinkConfig
from wallaroo.user_code.user_frames import user_frame, user_place

if TYPE_CHECKING:
    from wallaroo.dataflow.plan.model import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Application:
    """Graph and plan of an application, which ``application_setup`` returns."""

    name: str
    root: Node
    plan: Plan
    serializer: Hooks | None = None  # the application module's own (serialize, deserialize)

    def _repr_svg_(self) -> str:
        """Draw the graph, for notebooks."""
        from wallaroo.dataflow.graph.svg import svg

        return svg(self.root, self.name)

    def _repr_html_(self) -> str:
        """Draw the graph in HTML, for notebooks that prefer it."""
        return f"<div>{self._repr_svg_()}</div>"

    def _repr_markdown_(self) -> str:
        """Return the graph as a Mermaid diagram, for notebooks."""
        from wallaroo.dataflow.graph.render import mermaid

        return f"```mermaid\n{mermaid(self)}```\n"

    def with_hooks_of(self, module: Mapping[str, Any]) -> Application:
        """Return the application with the ``serialize`` and ``deserialize`` of a module.

        ``module`` is the module's ``vars()``.  Unless it defines both, the application is returned
        unchanged.
        """
        hooks = hooks_of(module)
        if hooks is None:
            return self
        return replace(self, serializer=hooks, plan=replace(self.plan, serializer=hooks))

    def with_setup_values(self, packed: bytes) -> Application:
        """Return the application with its set-up's changes of module values, for the workers."""
        return replace(self, plan=replace(self.plan, setup_values=packed)) if packed else self

    def with_dead_letters(self, sink_config: SinkConfig) -> Application:
        """Return the application with another dead-letter sink.

        It replaces the one it was built with, if any.
        """
        return replace(self, plan=_building().with_dead_letters(self.plan, sink_config))

    def check_dead_letters(self) -> None:
        """Raise WallarooParameterError if a step writes dead letters without a sink for them."""
        _building().check_dead_letters(self.plan)


def build_application(
    application_name: str,
    pipeline: Pipeline[Any],
    *more: Pipeline[Any],
    dead_letters: SinkConfig | None = None,
) -> Application:
    """Check one or several closed pipelines, and plan how they run as one application.

    All pipelines of an application are committed together, batch by batch.

    ``dead_letters`` is the sink for events for which a step with ``on_error="dead-letter"`` raised:
    it receives a JSON object per line, or the result of its own encoder for the dict.

    Raises WallarooParameterError, a PipelineError, with *all* problems found, each with its step,
    ``file:line``, and fix.
    """
    frame = user_frame()
    hooks = hooks_of(frame.f_globals) if frame else None
    root, plan = _building().checked_plan(
        application_name, (pipeline, *more), user_place(), hooks, dead_letters
    )
    return Application(application_name, root, plan, hooks)


def _building() -> ModuleType:
    """Return the module of checks and planner, which importing the package does not load."""
    from wallaroo.api import building

    return building
