"""``build_application``: a closed pipeline, checked and planned.

Where it runs: driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wallaroo.api.pipeline import Pipeline
from wallaroo.api.place import user_frame, user_place
from wallaroo.api.serialization import Hooks, hooks_of
from wallaroo.check.run import check
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.graph.nodes import Node
from wallaroo.plan.build import build_plan
from wallaroo.plan.model import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Application:
    """What ``application_setup`` returns: the graph as written, and the plan of how it runs."""

    name: str
    root: Node
    plan: Plan
    serializer: Hooks | None = None  # the application module's own (serialize, deserialize)

    def with_hooks_of(self, module: Mapping[str, Any]) -> Application:
        """The same application with ``serialize`` and ``deserialize`` of ``module`` (its ``vars()``), if it defines both."""
        hooks = hooks_of(module)
        if hooks is None:
            return self
        return replace(self, serializer=hooks, plan=replace(self.plan, serializer=hooks))


def build_application(application_name: str, pipeline: Pipeline[Any]) -> Application:
    """Check a closed pipeline and plan how it runs.

    Raises WallarooParameterError, a PipelineError, with *all* problems found, each with its step, ``file:line``, and cure.
    """
    given: Any = pipeline
    if not isinstance(given, Pipeline):
        what = f"build_application got {pipeline!r} instead of a pipeline."
        cure = "Give it what to_sink() returned."
        raise WallarooParameterError(Problem(f"application '{application_name}'", user_place(), what, cure))
    frame = user_frame()
    hooks = hooks_of(frame.f_globals) if frame else None
    check(application_name, pipeline.node, user_place(), hooks)
    return Application(application_name, pipeline.node, build_plan(application_name, pipeline.node, hooks), hooks)
