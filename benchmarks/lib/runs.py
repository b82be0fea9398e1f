"""Running an application under measurement: start it, follow its batches, stop it.

Where it runs: the benchmark's process, which is the driver.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.lib.loads import HOST, ORDERS, QUOTES, module_folders
from benchmarks.lib.machine import BenchmarkError
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.options import RunOptions
from wallaroo.runtime.host import Host
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.spark.jvm.preflight import with_host
from wallaroo.spark.jvm.settings import BOTH_COMPILERS, DRIVER_OPTIONS
from wallaroo.spark.micro_batch import host
from wallaroo.spark.session.host_session import open_context, session_in
from wallaroo.state.checkpoint import open_checkpoint

POLL_S = 0.01  # a batch's end is known this exactly; the errors of neighbours cancel out
STILL_S_MAX = 120.0  # without any batch
STOP_S_MAX = 60.0
WARM_UP = 0.4  # of the events: the JVM has compiled by then, and batches are as large as they get
DRIVER_MEMORY = "2g"
AS_SPARK_ITSELF = (DRIVER_OPTIONS, BOTH_COMPILERS)  # if the JVM does the work
ANY_BACKLOG = 1 << 40  # a spool that was filled before the run is not a sender to be slowed down


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did, and how long it was from the commit before to its own: everything between
    two batches counts.
    """

    events: int
    outputs: int
    seconds: float


@contextmanager
def spark(folder: Path, *settings: tuple[str, str]) -> Iterator[SparkSession]:
    """One Spark session for all runs of a benchmark: the product's own settings, but for the given
    ones.
    """
    scratch = folder / "spark"
    scratch.mkdir()
    chosen = (("spark.driver.memory", DRIVER_MEMORY), *settings)
    session = session_in(open_context("benchmark", "local[*]", scratch, "error", chosen))
    try:
        yield session
    finally:
        session.stop()


def market_spread(out_port: int, module: str = "market_spread") -> Any:
    """The example application, or its vectorized twin, on free ports."""
    example = import_module(module)  # found by loads.prepare()

    return example.application_setup(
        ["--in", f"{ORDERS}@{HOST}:0,{QUOTES}@{HOST}:0", "--out", f"{HOST}:{out_port}"]
    )


def word_count(out_port: int) -> Any:
    """The example application, on free ports."""
    import word_count as example  # found by loads.prepare()

    return example.application_setup(
        ["--in", f"Split and Count@{HOST}:0", "--out", f"{HOST}:{out_port}"]
    )


def new_run(
    application: Any,
    session: SparkSession | None,
    checkpoint: Path | None = None,
    own_host: Host | None = None,
    **changes: Any,
) -> Run:
    """A run that has not started, whose checkpoint folder is laid out, so that its spool may be
    filled. Its host is the one that `wallaroo run` chooses, unless ``changes`` name another.
    """
    options = RunOptions(
        checkpoint=checkpoint, log_level="error", module_paths=module_folders(), **changes
    )
    if own_host is None:
        run = host.new_run(application, with_host(options, session), session)
    else:
        run = Run(application, options, own_host)
    open_checkpoint(run.root, checkpoint is not None).release()
    return run


@contextmanager
def started(run: Run) -> Iterator[Run]:
    """Start a run; stop it at the end, and say what ended it if that was not us."""
    run.start()
    try:
        yield run
    finally:
        run.stop()
        has_ended = run.wait(STOP_S_MAX)
    if run.exception is not None:
        raise run.exception
    if not has_ended:
        raise BenchmarkError(f"the run did not stop within {STOP_S_MAX:g} s.")


def follow(run: Run, is_done: Callable[[RunStatus], bool], poll_s: float = POLL_S) -> list[Batch]:
    """Watch batches until it is done; raises what ended the run, or BenchmarkError where nothing
    happens.
    """
    batches: list[Batch] = []
    last, last_at = run.status(), time.perf_counter()
    while True:
        if run.exception is not None:
            raise run.exception
        status, now = run.status(), time.perf_counter()
        if status.batches != last.batches:
            batches.append(
                Batch(
                    status.events_done - last.events_done,
                    status.outputs - last.outputs,
                    now - last_at,
                )
            )
            last, last_at = status, now
        if is_done(status):
            return batches
        if now - last_at > STILL_S_MAX:
            raise BenchmarkError(
                f"no batch was committed for {STILL_S_MAX:g} s (waiting for: "
                f"{status.waiting_for or 'nothing'})."
            )
        time.sleep(poll_s)


def steady(batches: list[Batch]) -> Batch:
    """All batches behind the warm-up together, without the partial last one."""
    warm_up = WARM_UP * sum(batch.events for batch in batches)
    done = itertools.accumulate(batch.events for batch in batches)
    kept = [batch for batch, end in zip(batches[:-1], done, strict=False) if end > warm_up]
    if not kept:
        raise BenchmarkError(
            f"only {len(batches)} batches, none of them behind the warm-up: ask for more events."
        )
    return Batch(
        sum(batch.events for batch in kept),
        sum(batch.outputs for batch in kept),
        sum(batch.seconds for batch in kept),
    )


def until_done(events: int) -> Callable[[RunStatus], bool]:
    """Whether that many events are in committed batches."""
    return lambda status: status.events_done >= events
