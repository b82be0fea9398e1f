"""The answers of a running application: status as JSON, and Wallaroo's queries.

The queries have the shape that Wallaroo's tools had.

Where it runs: driver and a terminal.  All functions are pure: a plan and a `RunStatus` in,
something JSON can hold out.

The meaning of the numbers:

* ``state_partitions`` lists, by state step and worker, *key groups*: shares of that step's keys.
  All state steps of an application share one layout, so each lists the same.
* ``stateless_partitions`` lists, by stage without state and worker, *tasks* of the last batch, 0 to
  n - 1.  Any task may run anywhere: the numbers show how many of a stage's tasks a worker has, not
  which.
* ``source_ids`` are the sources' names.
* A resident run on one machine lists no workers, so that these answers are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from wallaroo.dataflow.plan.model import Plan, SourceEntry, Stage
from wallaroo.engine.blocks.shares import shares
from wallaroo.monitoring.metrics.status import RunState, RunStatus, WorkerStatus

Answer = dict[str, Any]
Partitions = dict[str, dict[str, list[int]]]  # state step or stage -> worker -> numbers

SUFFIX = "-query"  # in a query's name, as Wallaroo's tools have it
# keys of each state step in one answer
LIMIT_DEFAULT = 10_000
LIMIT_MAX = 100_000
TRUNCATED = "X-Wallaroo-Truncated"  # header: keys were left out
STATUS_PATH = "/status"


# -- queries


def query_of(name: str) -> str | None:
    """Return the query of a name, with or without Wallaroo's suffix ``-query``.

    None if there is no such query.

    >>> query_of("partition-query"), query_of("partition"), query_of("weather")
    ('partition', 'partition', None)
    """
    bare = name.removesuffix(SUFFIX)
    return bare if bare in QUERIES else None


def answer(query: str, plan: Plan, status: RunStatus) -> Answer:
    """Answer a query that needs no state: one of ``FROM_STATUS``."""
    return FROM_STATUS[query](plan, status)


def cluster_status(plan: Plan, status: RunStatus) -> Answer:
    """Return whether events are processed, and which workers there are."""
    names = [worker.name for worker in status.workers]
    return {
        "processing_messages": status.state is RunState.RUNNING,
        "worker_count": len(names),
        "worker_names": names,
    }


def source_ids(plan: Plan, status: RunStatus) -> Answer:
    return {"source_ids": [source.config.name for source in plan.sources]}


def partition(plan: Plan, status: RunStatus) -> Answer:
    """Return the key groups of every state step and the tasks of every other stage, by worker."""
    return {
        "state_partitions": state_partitions(plan, status),
        "stateless_partitions": stateless_partitions(plan, status),
    }


def partition_count(plan: Plan, status: RunStatus) -> Answer:
    """Return how many key groups and tasks every worker has."""
    return {kind: _counted(partitions) for kind, partitions in partition(plan, status).items()}


def stateless_partition_count(plan: Plan, status: RunStatus) -> Answer:
    """Return how many tasks of every stage without state each worker has."""
    return dict(_counted(stateless_partitions(plan, status)))


def state_partitions(plan: Plan, status: RunStatus) -> Partitions:
    """Return the key groups of each worker, by state step."""
    return {
        step: {worker.name: list(worker.key_groups) for worker in status.workers}
        for step in plan.state_steps
    }


def stateless_partitions(plan: Plan, status: RunStatus) -> Partitions:
    """Return the tasks of each worker, by stage without state."""
    tasks = {}
    first = 0
    for worker, share in zip(
        status.workers, shares(status.tasks, _weights(status.workers)), strict=True
    ):
        tasks[worker.name] = range(first, first + share)
        first += share
    stateless = [stage for stage in plan.stages if not stage.state_steps]
    return {
        stage_name(plan, stage): {worker: list(some) for worker, some in tasks.items()}
        for stage in stateless
    }


def stage_name(plan: Plan, stage: Stage) -> str:
    """Return a stage's number and its source or steps, as in ``stage 0 (source Lines)``."""
    if isinstance(stage.entry, SourceEntry):
        within = f"source {plan.sources[stage.entry.source].config.name}"
    else:
        within = ", ".join(step.step_name for step in stage.steps)
    return f"stage {stage.id} ({within})" if within else f"stage {stage.id}"


def _weights(workers: Sequence[WorkerStatus]) -> list[int]:
    """Return each worker's weight in a stage: tasks of the last batch, else cores."""
    tasks = [worker.tasks for worker in workers]
    return tasks if any(tasks) else [worker.cores for worker in workers]


def _counted(partitions: Partitions) -> dict[str, dict[str, int]]:
    return {
        name: {worker: len(numbers) for worker, numbers in workers.items()}
        for name, workers in partitions.items()
    }


FROM_STATUS: dict[str, Callable[[Plan, RunStatus], Answer]] = {
    "cluster-status": cluster_status,
    "partition": partition,
    "partition-count": partition_count,
    "source-ids": source_ids,
    "stateless-partition": lambda plan, status: dict(stateless_partitions(plan, status)),
    "stateless-partition-count": stateless_partition_count,
}
# these read the state: status_api.entities
KEYS = "state-entity"
COUNTS = ("state-entity-count", "cluster-state-entity-count")
# queries of the dashboard's state explorer
SEARCH = "state-search"
OBJECT = "state-object"
QUERIES: dict[str, str] = {
    "cluster-status": "whether events are processed, and the workers",
    "partition": "key groups by state step and worker, tasks by other stage and worker",
    "partition-count": "how many of them",
    "source-ids": "the sources' names",
    "state-entity": "keys by state step, at most ?limit= of each",
    "state-entity-count": "how many keys by state step",
    "cluster-state-entity-count": "the same: every worker's state is in the checkpoint",
    "stateless-partition": "tasks by stage without state and worker",
    "stateless-partition-count": "how many of them",
}


# -- status


def status_json(status: RunStatus) -> Answer:
    """Return the whole status as JSON."""
    return asdict(status)


def status_of(raw: Mapping[str, Any]) -> RunStatus:
    """Undo ``status_json``, also after a round trip through JSON.

    Fields that are not known here are left out.

    Raises TypeError if a field is missing or of another type.
    """
    try:
        return msgspec.convert(raw, RunStatus)
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from error
