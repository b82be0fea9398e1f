"""The entry point ``wallaroo.run``, which starts an application on Spark.

Where it runs: driver.  Spark is imported when an application is run, not when ``wallaroo`` is.
"""

from __future__ import annotations

import difflib
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

from wallaroo.api.application import Application
from wallaroo.dataflow.check.pickling import interactive_problems
from wallaroo.errors import PipelineError, Problem
from wallaroo.options import KEY_GROUPS_MAX, RunChanges, RunHandle, RunOptions
from wallaroo.user_code.user_frames import user_files
from wallaroo.user_code.worker_mark import UNDER_MAIN, is_run_forbidden


def run(
    application: Application,
    options: RunOptions | None = None,
    *,
    session: Any = None,
    **changes: Unpack[RunChanges],
) -> RunHandle:
    """Start ``application`` on Spark; return a handle once it has begun to process input.

    The run continues in the background: call the handle's ``result`` to wait for its end.  A
    program that ends before that stops it.

    ``session`` is a SparkSession to run in; without one, Spark is started (and stopped at the end).
    ``changes`` are fields of ``RunOptions`` by name: ``run(app, tasks=4,
    checkpoint=Path("state"))``.  Raises PeerError if a port is in use, Java is missing or the
    checkpoint cannot be used; CheckpointError if the checkpoint does not fit.
    """
    handle = launch(application, options, session=session, **changes)
    handle.wait_started()
    return handle


def launch(
    application: Application,
    options: RunOptions | None = None,
    *,
    session: Any = None,
    **changes: Unpack[RunChanges],
) -> RunHandle:
    """Start ``application`` in the background; return at once, so ``stop`` can abort the start.

    The arguments are those of ``run``.  Raises PipelineError or PeerError if it cannot begin; the
    handle's ``wait_started`` raises later errors.
    """
    chosen = _checked(application, options, changes, session)
    from wallaroo.spark.jvm.jvm_process import begin_jvm

    begun = begin_jvm(application.name, chosen) if session is None else None
    try:
        from wallaroo.spark.micro_batch.host import new_run  # while the JVM starts

        handle: RunHandle = new_run(application, chosen, session, begun)
    except BaseException:
        if begun is not None:
            begun.discard()
        raise
    handle.begin()
    return handle


def _checked(
    application: Application, options: RunOptions | None, changes: RunChanges, session: Any
) -> RunOptions:
    """Return the options of a run after all checks that need no Spark."""
    title = f"application '{application.name}'"
    if is_run_forbidden():
        what = "wallaroo.run was called while a worker imported this module."
        raise PipelineError(Problem(title, "", what, UNDER_MAIN))
    _refuse_unknown(changes)
    if problems := tuple(
        interactive_problems(
            application.plan.steps, [source.config for source in application.plan.sources]
        )
    ):
        raise PipelineError(*problems)
    application.check_dead_letters()
    chosen = replace(options or RunOptions(), **changes)
    if not 1 <= chosen.key_groups <= KEY_GROUPS_MAX:
        what = f"{chosen.key_groups} key groups were asked for."
        raise PipelineError(
            Problem(title, "", what, f"Choose 1 to {KEY_GROUPS_MAX}; 128 suits most.")
        )
    from wallaroo.spark.jvm.preflight import check_before_spark, with_host

    check_before_spark(application.plan, chosen, has_session=session is not None)
    chosen = with_host(chosen, session)
    if not chosen.module_paths:
        # workers can import the modules of the calling script
        folders = tuple(str(Path(file).resolve().parent) for file in islice(user_files(), 1))
        chosen = replace(chosen, module_paths=folders)
    return chosen


def _refuse_unknown(changes: RunChanges) -> None:
    known = [field.name for field in fields(RunOptions)]
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean '{near[0]}'?" if near else f" It takes {', '.join(known)}."
            raise TypeError(f"wallaroo.run() got an unexpected argument '{name}'.{hint}")
