"""What ``build_application`` returns: the graph as it was written, and the plan of how it runs.

Where it runs: driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wallaroo.api.pipeline import Pipeline
from wallaroo.api.serialization import Hooks, hooks_of
from wallaroo.graph.nodes import Node
from wallaroo.sinks.interface import SinkConfig
from wallaroo.user_frames import user_frame, user_place

if TYPE_CHECKING:
    from wallaroo.plan.model import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Application:
    """What ``application_setup`` returns: the graph as written, and the plan of how it runs."""

    name: str
    root: Node
    plan: Plan
    serializer: Hooks | None = None  # the application module's own (serialize, deserialize)

    def _repr_svg_(self) -> str:
        """The graph as a drawing, for notebooks."""
        from wallaroo.graph.svg import svg

        return svg(self.root, self.name)

    def _repr_html_(self) -> str:
        """The same, for those that prefer HTML."""
        return f"<div>{self._repr_svg_()}</div>"

    def _repr_markdown_(self) -> str:
        """The graph as a diagram, for notebooks."""
        from wallaroo.graph.render import mermaid

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
        from wallaroo.api.building import with_dead_letters

        return replace(self, plan=with_dead_letters(self.plan, sink_config))

    def check_dead_letters(self) -> None:
        """Raise WallarooParameterError where a step writes dead letters and there is no sink for
        them.
        """
        from wallaroo.api.building import check_dead_letters

        check_dead_letters(self.plan)


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
    from wallaroo.api.building import checked_plan

    frame = user_frame()
    hooks = hooks_of(frame.f_globals) if frame else None
    root, plan = checked_plan(
        application_name, (pipeline, *more), user_place(), hooks, dead_letters
    )
    return Application(application_name, root, plan, hooks)
