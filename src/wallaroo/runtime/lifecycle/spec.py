"""The specification of a run: its plan, options, host and folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.levels import is_synced
from wallaroo.ingress.process import Feeders
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.options import RunOptions
from wallaroo.runtime.host import Host, RunFolders


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The plan, options, host, folders and meter of a run."""

    plan: Plan
    options: RunOptions
    host: Host
    site: RunFolders
    meter: RunMeter
    feeders: Feeders
    is_host_open: bool = False  # a standby opens it before it leads
    view_root: Path | None = None  # the view that a standby has kept up to date

    @property
    def is_durable(self) -> bool:
        """Return whether state and progress survive the run."""
        return self.options.checkpoint is not None

    @property
    def is_synced(self) -> bool:
        """Return whether each commit, with the files it names, is on disk before it counts."""
        return is_synced(self.options.level, True)
