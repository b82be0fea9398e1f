"""How a run is asked for and what it answers: options, the handle's interface, and the refusal to
run in workers.

Where it runs: everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from wallaroo.errors import WallarooError
from wallaroo.plan.model import KEY_GROUPS_DEFAULT

if TYPE_CHECKING:
    from wallaroo.metrics.status import RunStatus

KEY_GROUPS_MAX = 32_768  # the view keeps a group's number in two bytes
BACKLOG_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run: every field has the default that suits one machine."""

    master: str = "local[*]"  # Spark's master
    # folder for state and progress; None: a temporary one, and nothing survives the run
    checkpoint: Path | None = None
    is_fresh: bool = False  # delete what the checkpoint holds first
    tasks: int | None = None  # tasks per stage at most; None: one per core
    # how long a batch may take; a larger backlog is cut into batches of about this
    batch_time_s: float = 1.0
    log_level: str = "error"  # of Spark: debug, info, warning, error, off
    key_groups: int = KEY_GROUPS_DEFAULT  # shares of state; fixed for the life of a checkpoint
    # per source and per sink; beyond it nothing more is read
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    retain_commits: int = 16  # newest commits that stay usable as starting points
    drain_s: float = 5.0  # how long a stopping run waits for its output to leave
    # folders of the application's modules, for sys.path of the workers
    module_paths: tuple[str, ...] = ()
    spark_conf: tuple[tuple[str, str], ...] = ()  # settings of Spark on top of ours
    # TCP source name -> port on which senders get acknowledgements
    ack_ports: tuple[tuple[str, int], ...] = ()
    # on a cluster: tasks go where the state of their key groups is; False: anywhere (to compare)
    is_sticky: bool = True
    # where the run answers queries over HTTP; port 0: any; None: nowhere
    status_address: tuple[str, int] | None = ("127.0.0.1", 0)
    # what clients of the status server must present; empty: nothing on a loopback address, a fresh
    # one (in run.json) elsewhere
    status_token: str = field(default="", repr=False)
    # go on with a checkpoint of a changed application, dropping what no longer fits
    allow_incompatible: bool = False


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


def is_run_forbidden() -> bool:
    """Whether this process is a worker, where ``run`` refuses."""
    return _is_forbidden
