"""``wallaroo.run``: start an application on Spark and get a handle.

Where it runs: driver.  Spark is imported when an application is run, not when ``wallaroo`` is: that is the one late import of the package.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wallaroo.api.application import Application
from wallaroo.errors import PipelineError, Problem, WallarooError
from wallaroo.plan.model import KEY_GROUPS_DEFAULT

if TYPE_CHECKING:
    from wallaroo.metrics.status import RunStatus

KEY_GROUPS_MAX = 32_768  # the view keeps a group's number in two bytes
BACKLOG_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run: every field has the default that suits one machine."""

    master: str = "local[*]"  # Spark's master
    checkpoint: Path | None = None  # folder for state and progress; None: a temporary one, and nothing survives the run
    is_fresh: bool = False  # delete what the checkpoint holds first
    tasks: int | None = None  # tasks per stage at most; None: one per core
    batch_time_s: float = 1.0  # how long a batch may take; a larger backlog is cut into batches of about this
    log_level: str = "error"  # of Spark: debug, info, warning, error, off
    key_groups: int = KEY_GROUPS_DEFAULT  # shares of state; fixed for the life of a checkpoint
    backlog_bytes_max: int = BACKLOG_BYTES_MAX  # per source and per sink; beyond it nothing more is read
    retain_commits: int = 16  # newest commits that stay usable as starting points
    drain_s: float = 5.0  # how long a stopping run waits for its output to leave
    module_paths: tuple[str, ...] = ()  # folders of the application's modules, for sys.path of the workers
    spark_conf: tuple[tuple[str, str], ...] = ()  # settings of Spark on top of ours
    ack_ports: tuple[tuple[str, int], ...] = ()  # TCP source name -> port on which senders get acknowledgements
    is_sticky: bool = True  # on a cluster: tasks go where the state of their key groups is; False: anywhere (to compare)
    # where the run answers queries over HTTP; port 0: any; None: nowhere
    status_address: tuple[str, int] | None = ("127.0.0.1", 0)
    allow_incompatible: bool = False  # go on with a checkpoint of a changed application, dropping what no longer fits


class RunHandle(Protocol):
    """A running application."""

    @property
    def exception(self) -> WallarooError | None:
        """What ended the run, or None."""

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each TCP source listens, by source name."""

    def status(self) -> RunStatus:
        """A snapshot."""

    def stop(self) -> None:
        """Ask for a stop at the next batch boundary; return at once."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end at most ``timeout`` seconds; return whether it has ended."""


_is_forbidden = False  # in workers, which import the application's module


def forbid_runs() -> None:
    """From here on ``run`` refuses, in this process."""
    global _is_forbidden
    _is_forbidden = True


def run(application: Application, options: RunOptions | None = None, *, session: Any = None, **changes: Any) -> RunHandle:
    """Start ``application`` on Spark; return a handle at once.

    ``session`` is a SparkSession to run in; without one, Spark is started (and stopped at the end).  ``changes`` are fields of
    ``RunOptions`` by name: ``run(app, tasks=4, checkpoint=Path("state"))``.  Raises PeerError where a port is taken,
    Java is missing or the checkpoint cannot be used; CheckpointError where the checkpoint does not fit.
    """
    if _is_forbidden:
        what = "wallaroo.run was called while a worker imported this module."
        raise PipelineError(
            Problem(f"application '{application.name}'", "", what, "Put the call under: if __name__ == '__main__':")
        )
    application.check_dead_letters()
    chosen = replace(options or RunOptions(), **changes)
    if not 1 <= chosen.key_groups <= KEY_GROUPS_MAX:
        what = f"{chosen.key_groups} key groups were asked for."
        raise PipelineError(
            Problem(f"application '{application.name}'", "", what, f"Choose 1 to {KEY_GROUPS_MAX}; 128 suits most.")
        )
    if not chosen.module_paths:
        chosen = replace(chosen, module_paths=_callers_folders())
    driver = importlib.import_module("wallaroo.spark.driver")
    handle: RunHandle = driver.start(application, chosen, session)
    return handle


def _callers_folders() -> tuple[str, ...]:
    """The folder of the calling script, so that workers can import what it defines."""
    for frame in inspect.stack()[2:]:
        if not frame.filename.startswith("<") and "/wallaroo/" not in frame.filename:
            return (str(Path(frame.filename).resolve().parent),)
    return ()
