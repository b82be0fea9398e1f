"""``wallaroo.run``: start an application on Spark and get a handle.

Where it runs: driver.  Spark is imported when an application is run, not when ``wallaroo`` is: that
is the one late import of the package.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from wallaroo.api.application import Application
from wallaroo.errors import PipelineError, Problem
from wallaroo.options import KEY_GROUPS_MAX, RunHandle, RunOptions, is_run_forbidden
from wallaroo.user_frames import user_files


def run(
    application: Application,
    options: RunOptions | None = None,
    *,
    session: Any = None,
    **changes: Any,
) -> RunHandle:
    """Start ``application`` on Spark; return a handle at once.

    ``session`` is a SparkSession to run in; without one, Spark is started (and stopped at the end).
    ``changes`` are fields of ``RunOptions`` by name: ``run(app, tasks=4,
    checkpoint=Path("state"))``.  Raises PeerError where a port is taken, Java is missing or the
    checkpoint cannot be used; CheckpointError where the checkpoint does not fit.
    """
    if is_run_forbidden():
        what = "wallaroo.run was called while a worker imported this module."
        raise PipelineError(
            Problem(
                f"application '{application.name}'",
                "",
                what,
                "Put the call under: if __name__ == '__main__':",
            )
        )
    application.check_dead_letters()
    chosen = replace(options or RunOptions(), **changes)
    if not 1 <= chosen.key_groups <= KEY_GROUPS_MAX:
        what = f"{chosen.key_groups} key groups were asked for."
        raise PipelineError(
            Problem(
                f"application '{application.name}'",
                "",
                what,
                f"Choose 1 to {KEY_GROUPS_MAX}; 128 suits most.",
            )
        )
    if not chosen.module_paths:
        chosen = replace(chosen, module_paths=_callers_folders())
    from wallaroo.spark.driver import start

    return start(application, chosen, session)


def _callers_folders() -> tuple[str, ...]:
    """The folder of the calling script, so that workers can import what it defines."""
    return tuple(str(Path(file).resolve().parent) for file in islice(user_files(), 1))
