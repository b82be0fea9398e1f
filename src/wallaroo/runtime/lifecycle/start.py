"""Start of a run: checkpoint, sources, sinks, host, and batches.

Where it runs: driver.  The parts that can refuse to run are opened first: the quick and cheap ones
before the slow ones.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from wallaroo.inspection.compatibility import Compatibility, check_compatibility
from wallaroo.metrics.meter import RunMeter
from wallaroo.metrics.progress import Recovery
from wallaroo.options import RunOptions
from wallaroo.plan.model import Plan
from wallaroo.runtime.accounts import Accounts
from wallaroo.runtime.batches import Batches, BatchSetup
from wallaroo.runtime.commit_protocol import BatchProtocol
from wallaroo.runtime.host import Host, Site
from wallaroo.runtime.housekeeping import Housekeeping
from wallaroo.runtime.intake import Intake
from wallaroo.runtime.job import Deployment
from wallaroo.runtime.lifecycle.closing import Closers
from wallaroo.runtime.lifecycle.observer import Observer
from wallaroo.runtime.lifecycle.phases import Phases
from wallaroo.runtime.lifecycle.sinks import SinkClosing, SinkSide, open_sinks
from wallaroo.runtime.lifecycle.sources import SourceSide
from wallaroo.runtime.pacing import Pacer
from wallaroo.runtime.recovery import step_table, with_namespaces
from wallaroo.runtime.replay import Replay, tuned
from wallaroo.sources.log import Position, from_stored
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.user_output.collector import Collector
from wallaroo.user_output.settings import UserOutput

_log = logging.getLogger("wallaroo.run")


@dataclass(frozen=True, slots=True)
class Order:
    """The order for a run: plan, options, host and folders."""

    plan: Plan
    options: RunOptions
    host: Host
    site: Site
    meter: RunMeter

    @property
    def is_temporary(self) -> bool:
        """Return whether nothing is to survive the run."""
        return self.options.checkpoint is None


@dataclass(frozen=True, slots=True)
class Parts:
    """A started run."""

    checkpoint: Checkpoint
    sources: SourceSide
    sinks: SinkSide
    batches: Batches
    accounts: Accounts
    intake: Intake
    observer: Observer


@dataclass(frozen=True, slots=True)
class Found:
    """The checkpoint, and how it fits the application."""

    checkpoint: Checkpoint
    compatibility: Compatibility
    sources: SourceSide

    @property
    def plan(self) -> Plan:
        """Return the plan to run, with the checkpoint's ids of its sinks."""
        return self.compatibility.plan

    @property
    def positions(self) -> dict[str, Position]:
        """Return the ends of the last commit, by source."""
        return _committed(self.checkpoint)


def _committed(checkpoint: Checkpoint) -> dict[str, Position]:
    return from_stored(checkpoint.last.offsets) if checkpoint.last else {}


def open_state(order: Order, phases: Phases, closers: Closers) -> Found:
    """Open the checkpoint; raise if the application cannot continue from it."""
    phases.enter("opening the checkpoint")
    options = order.options
    checkpoint = open_checkpoint(order.site.root, not order.is_temporary, options.is_fresh)
    closers.add(checkpoint.release)
    tuning = options.tuning if options.speed is None else tuned(options.tuning)
    sources = SourceSide(order.plan, order.site.root, checkpoint.id, not order.is_temporary, tuning)
    closers.add(sources.close)
    sources.require(_committed(checkpoint))
    compatibility = check_compatibility(checkpoint, order.plan, options.allow_incompatible)
    for note in compatibility.notes:
        _log.warning(note)
    order.meter.recovered(Recovery(checkpoint.last.batch if checkpoint.last else -1))
    return Found(checkpoint, compatibility, sources)


def open_sources(
    order: Order, found: Found, phases: Phases, is_stopping: Callable[[], bool]
) -> dict[str, Position]:
    """Accept input from now on; return the beginnings of sources without a position."""
    phases.enter("opening sources")
    wake = order.site.wake
    found.sources.start(order.options, order.host.serve_on, is_stopping, wake)
    return found.sources.beginnings(found.positions)


def open_parts(
    order: Order,
    found: Found,
    beginnings: dict[str, Position],
    phases: Phases,
    closers: Closers,
) -> Parts:
    """Open sinks and the host, and assemble the run."""
    phases.enter("opening sinks")
    outbox = order.site.root / "outbox"
    closing = SinkClosing(closers, order.options.drain_s)
    sinks = open_sinks(found.plan, outbox, found.checkpoint, not order.is_temporary, closing)
    closers.add(order.host.close)
    order.host.open(order.site, phases.enter)
    deployment = replace(
        _deployment(order, found),
        tuning=order.options.tuning,
        user_output=_user_output(order, closers),
    )
    return _parts(order, found, beginnings, sinks, deployment)


def _user_output(order: Order, closers: Closers) -> UserOutput:
    """Collect user code's output if workers are on this machine.

    Elsewhere it goes to the logs of their processes.
    """
    level = order.options.app_log_level
    if not order.host.is_local:
        return UserOutput("", level)
    collector = Collector(order.site.scratch)
    closers.add(collector.close)
    collector.start()
    return UserOutput(collector.address, level, os.getpid())


def _parts(
    order: Order,
    found: Found,
    beginnings: dict[str, Position],
    sinks: SinkSide,
    deployment: Deployment,
) -> Parts:
    plan = found.plan
    options = order.options
    host = order.host
    checkpoint = found.checkpoint
    sources = found.sources
    dropped = with_namespaces(found.compatibility.dropped)
    steps = step_table(checkpoint.last, plan.step_names, dropped)
    is_frequent = options.latency == "low"
    housekeeping = Housekeeping(
        checkpoint,
        plan.key_groups if steps else 0,  # without state no commit needs the one before it
        options.retained,
        is_frequent=is_frequent,
        tuning=options.tuning,
    )
    if is_frequent:
        tuning = options.tuning
        checkpoint.commits.append_from_here(tuning.commit_run_bytes_max, tuning.commit_run_max)
    accounts = Accounts(plan, order.meter)
    replay = _replay(order, checkpoint)
    limits = replay.limits if replay else None
    intake = Intake(host.admit, options.tuning.pace.events_first, limits)
    batches = Batches(
        BatchSetup(plan, deployment, steps, sources.logs, beginnings),
        protocol=BatchProtocol(
            plan,
            checkpoint,
            sinks.committers,
            housekeeping,
            sources.logs_by_name,
            steps,
            _log.warning,
        ),
        housekeeping=housekeeping,
        runner=host,
        accounts=accounts,
        pacer=Pacer(options.batch_target_s, options.tuning.pace, is_frequent, plan.levels > 1),
        allow=intake.allow,
        done=replay.batch_done if replay else lambda commit: None,
    )
    observer = Observer(plan, sources.logs, batches, sinks.committers, order.meter)
    return Parts(checkpoint, sources, sinks, batches, accounts, intake, observer)


def _replay(order: Order, checkpoint: Checkpoint) -> Replay | None:
    if order.options.speed is None:
        return None
    positions = {name: ends.events for name, ends in _committed(checkpoint).items()}
    return Replay(order.options.speed, order.plan.source_times, positions)


def _deployment(order: Order, found: Found) -> Deployment:
    checkpoint = found.checkpoint
    is_local = order.host.is_local
    return Deployment.of(
        found.plan,
        _module_folders(order.options.module_paths) if is_local else (),
        order.site.root,
        found.sources.logs_of_workers(order.host.reachable_as),
        str(checkpoint.view_root) if is_local else "",
        checkpoint.id,
        not order.is_temporary,
        str(order.site.stacks) if is_local else "",
    )


def _module_folders(own: tuple[str, ...]) -> tuple[str, ...]:
    return (*own, *(path for path in sys.path if path and path not in own))
