"""The dashboard's data: a plan's graph, and a message per second.

The message holds everything that changes.

Where it runs: driver, in the server's threads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from threading import Lock
from typing import Any

from wallaroo.dataflow.plan import model
from wallaroo.monitoring.metrics.details import RunDetails
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api import queries
from wallaroo.monitoring.status_api.figures import notes

SHARED_S = 0.4  # several dashboards get the same message
GROUPS_MAX = 1024  # first key groups with figures of their own: a message a second stays small

Answer = dict[str, Any]


class LiveView:
    """The source of messages; all streams share one for a moment."""

    def __init__(self, plan: model.Plan):
        self._plan = plan
        self._lock = Lock()
        self._message = b""
        self._made_at = 0.0

    def message(self, status: RunStatus, meter: RunMeter) -> bytes:
        """Return status, details and the newest sample as JSON on one line."""
        with self._lock:
            now = time.monotonic()
            if not self._message or not 0 <= now - self._made_at < SHARED_S:
                content = {
                    "at": time.time(),
                    "status": queries.status_json(status),
                    "details": self.details(status, meter.details()),
                    "sample": meter.newest_sample(),
                }
                self._message = json.dumps(content, separators=(",", ":")).encode()
                self._made_at = now
            return self._message

    def details(self, status: RunStatus, details: RunDetails) -> Answer:
        """Return the details as JSON; errors have a path of their own."""
        return {
            "steps": [asdict(step) for step in details.steps],
            "stage_events": details.stage_events,
            "edges": [[*edge, events] for edge, events in sorted(details.edges.items())],
            "edge_bytes": [[*edge, size] for edge, size in sorted(details.edge_bytes.items())],
            "hot_keys": details.hot_keys,
            "slow_keys": details.slow_keys,
            "group_events": _first_groups(details.group_events),
            "group_bytes": _first_groups(details.state.group_bytes),
            "group_entries": _first_groups(details.group_entries),
            "key_groups": self._plan.key_groups,
            "worker_loads": [asdict(load) for load in details.worker_loads],
            "state": {
                "snapshot_bytes": details.state.snapshot_bytes,
                "delta_bytes": details.state.delta_bytes,
                "written_entries": details.state_changes[0],
                "written_bytes": details.state_changes[1],
                "steps": details.state_steps,
            },
            "batches": [asdict(batch) for batch in details.batches[-60:]],
            "phase_seconds": details.phase_seconds,
            "failed_total": details.failed_total,
            "failed_newest": details.failed[-1].number if details.failed else 0,
            "phases": [asdict(phase) for phase in details.phases],
            "recovery": asdict(details.recovery),
            "moves": [asdict(move) for move in details.moves],
            "notes": notes(status),
        }

    def errors(self, details: RunDetails) -> Answer:
        """Return the newest failed events, newest first."""
        failed = [asdict(failure) for failure in reversed(details.failed)]
        return {"total": details.failed_total, "newest": failed}


def _first_groups(figures: dict[int, int]) -> dict[int, int]:
    return {group: figure for group, figure in figures.items() if group < GROUPS_MAX}


# -- the graph


def graph_of(plan: model.Plan) -> Answer:
    """Return nodes and edges; ``place`` is a step's place in the samples of its stage."""
    return {
        "application": plan.application,
        "state_steps": list(plan.state_steps),
        "nodes": [*_source_nodes(plan), *_step_nodes(plan), *_sink_nodes(plan)],
        "edges": [edge for stage in plan.stages for edge in _edges(plan, stage)],
    }


def _source_nodes(plan: model.Plan) -> Iterator[Answer]:
    for stage in plan.stages:
        if isinstance(stage.entry, model.SourceEntry):
            source = plan.sources[stage.entry.source]
            yield _node(
                f"source:{stage.entry.source}",
                "source",
                source.config.name,
                source.config.label,
                stage.id,
            )


def _step_nodes(plan: model.Plan) -> Iterator[Answer]:
    for stage in plan.stages:
        for place, step in enumerate(stage.steps, 1):
            kind = "state" if step.is_stateful else "step"
            node = _node(f"step:{stage.id}:{place}", kind, step.step_name, step.kind, stage.id)
            # ``head`` is the stage whose keys are counted
            yield {**node, "place": place, "head": plan.head_of(stage).id}
        if isinstance(stage.exit, model.ToBranches) and stage.exit.split is not None:
            split = stage.exit.split
            node = _node(_split_id(stage), "step", split.step_name, split.kind, stage.id)
            yield {**node, "place": len(stage.steps) + 1}


def _sink_nodes(plan: model.Plan) -> Iterator[Answer]:
    for number, sink in enumerate(plan.sinks):
        if sink.name != model.DEAD_LETTERS:
            yield _node(f"sink:{number}", "sink", sink.name, sink.config.label, -1)


def _node(name: str, kind: str, title: str, label: str, stage: int) -> Answer:
    return {"id": name, "kind": kind, "name": title, "label": label, "stage": stage, "place": 0}


def _split_id(stage: model.Stage) -> str:
    return f"step:{stage.id}:{len(stage.steps) + 1}"


def _chain(stage: model.Stage) -> list[str]:
    """Return the nodes that a stage has, in order."""
    first = [f"source:{stage.entry.source}"] if isinstance(stage.entry, model.SourceEntry) else []
    steps = [f"step:{stage.id}:{place}" for place in range(1, len(stage.steps) + 1)]
    is_split = isinstance(stage.exit, model.ToBranches) and stage.exit.split is not None
    return [*first, *steps, *([_split_id(stage)] if is_split else [])]


def _edges(plan: model.Plan, stage: model.Stage) -> Iterator[Answer]:
    """Yield the edges through one stage, and out of it."""
    chain = _chain(stage)
    is_source = isinstance(stage.entry, model.SourceEntry)
    for place, (before, after) in enumerate(pairwise(chain)):
        yield {
            "from": before,
            "to": after,
            "kind": "direct",
            "stage": stage.id,
            "place": place + (1 if is_source else 2),
        }
    if not chain:
        return
    for edge in _exits(plan, stage):
        yield {"from": chain[-1], **edge}


def _exits(plan: model.Plan, stage: model.Stage) -> Iterator[Answer]:
    """Yield a stage's outgoing edges, through stages of only a shuffle or branch."""
    leave = stage.exit
    if isinstance(leave, model.ToExchange):
        following = plan.stages[leave.stage]
        shuffle = {
            "kind": "shuffle", "stage": stage.id, "after": leave.stage, "key": _key_of(leave)
        }  # fmt: skip
        for edge in _into(plan, following):
            yield {"to": edge["to"], **shuffle}
    elif isinstance(leave, model.ToBranches):
        words = ("true", "false") if leave.split is not None else ("",) * len(leave.stages)
        for branch, word in zip(leave.stages, words, strict=True):
            for edge in _into(plan, plan.stages[branch]):
                yield {**edge, "key": edge["key"] or word}
    else:
        for sink in leave.sinks:
            yield {
                "to": f"sink:{sink}", "kind": "sink", "stage": stage.id, "after": -1, "key": ""
            }  # fmt: skip


def _into(plan: model.Plan, stage: model.Stage) -> Iterator[Answer]:
    """Yield the edge to the first node of a stage, or those to where its events go."""
    chain = _chain(stage)
    if not chain:
        yield from _exits(plan, stage)
    else:
        yield {"to": chain[0], "kind": "direct", "stage": stage.id, "place": 1, "key": ""}


def _key_of(leave: model.ToExchange) -> str:
    if leave.keeps_key:
        return "by the key it has"
    return leave.extractor.step_name if leave.extractor else "all to one key"
