"""The tasks of a batch as one Spark job."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from wallaroo.engine.report import TaskReport
from wallaroo.processes.killed_workers import as_task
from wallaroo.runtime.tasks.block_files import through_files
from wallaroo.runtime.tasks.job import BatchJob
from wallaroo.runtime.tasks.task import run_alone, run_level
from wallaroo.spark.cluster.cluster import Cluster
from wallaroo.spark.cluster.layout import Layout, own_task
from wallaroo.spark.session.shuffles import ShuffleCleaner
from wallaroo.spark.session.spark_errors import CRASHED, TASK_FAILED, crashed, reason_of, text_of

ATTEMPTS = 5  # per batch on a cluster, whose hosts may leave
ATTEMPTS_LOCAL = 2
CRASHES_MAX = 3  # per batch on a cluster, in addition to attempts that lost hosts
_log = logging.getLogger("wallaroo.run")


def run_with_retries(
    context: SparkContext,
    job: BatchJob,
    cluster: Cluster,
    cleaner: ShuffleCleaner,
    abort: Callable[[int, Sequence[TaskReport]], None],
    scratch: Path | None = None,
) -> list[TaskReport]:
    """Run a batch; retry it if it failed for external reasons.

    On a cluster Spark may give it up because hosts left, or use a host that has not joined.  The
    staged output of such an attempt is dropped by ``abort``.

    On this host alone, it is run again once if workers crashed, without the view: a damaged one
    ends processes (SIGBUS), and is rebuilt from the checkpoint.  PeerError reports workers that
    keep crashing.

    ``scratch``: a folder of this host, for blocks between tasks.
    """
    attempts = ATTEMPTS_LOCAL if cluster.is_local else ATTEMPTS
    crashes = 0
    for attempt in range(1, attempts + 1):
        is_last = attempt == attempts
        try:
            folder = scratch if cluster.is_local else None
            found = run_spark_job(context, job, cleaner, cluster.layout(job.tasks), folder)
            reports = cluster.named(found)
        except TASK_FAILED as error:
            is_crash = CRASHED in text_of(error)
            crashes += is_crash
            if crashes == (ATTEMPTS_LOCAL if cluster.is_local else CRASHES_MAX):
                raise crashed(job.batch, crashes) from error
            if is_last or (cluster.is_local and not is_crash):
                raise
            if cluster.is_local:
                shutil.rmtree(job.deployment.view_folder(), ignore_errors=True)
            _log.warning("batch %d is run again, Spark gave it up: %s", job.batch, reason_of(error))
        else:
            failed = cluster.failure_on_non_member(reports)
            if is_last or not failed:
                return reports
            _log.warning("batch %d is run again, a task ran where it cannot: %s", job.batch, failed)
            abort(job.batch, reports)
            cluster.ask_others()
        cluster.look_now()
    raise AssertionError("unreachable")


def run_spark_job(
    context: SparkContext,
    job: BatchJob,
    cleaner: ShuffleCleaner,
    layout: Layout | None = None,
    scratch: Path | None = None,
) -> list[TaskReport]:
    """Run all levels of one batch as one Spark job; return the reports of all tasks.

    If there is a ``scratch`` folder that all tasks see, large blocks pass through files in it.  A
    batch of one task is one stage (docs/decisions/0022).

    Partitioning is never declared as preserved: Spark would assume that the next shuffle is done.
    """
    job = job.without_output()
    width = len(job.pieces)
    folder = _blocks_folder(scratch) if job.levels > 1 else None
    run = run_level if folder is None else partial(through_files, folder, run_level)
    base = layout.base(width) if layout else context.parallelize(range(width), width)
    is_alone = width == job.tasks == 1
    first = partial(run_alone, run, job) if is_alone else partial(run, job, 0)
    rows = base.mapPartitionsWithIndex(partial(as_task, first))
    shuffled: list[Any] = []
    for level in range(1, 1 if is_alone else job.levels):
        shuffled.append(rows.partitionBy(job.tasks, own_task))
        placed = layout.anchored(shuffled[-1]) if layout else shuffled[-1]
        rows = placed.mapPartitionsWithIndex(partial(as_task, partial(run, job, level)))
    try:
        return list(rows.collect())
    finally:
        cleaner.forget(shuffled)
        if folder is not None:
            cleaner.remove(folder)


def _blocks_folder(scratch: Path | None) -> str | None:
    if scratch is None:
        return None
    try:
        return tempfile.mkdtemp(prefix="blocks-", dir=scratch)
    except OSError:  # Spark may still cope, and reports the problem
        return None
