"""Start of a run: checkpoint, sources, sinks, host, and batches.

Parts that may fail are opened first, the quick and cheap ones before the slow ones.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from wallaroo.checkpoints.inspection.compatibility import (
    Compatibility,
    check_compatibility,
    put_back,
    require_compatible,
)
from wallaroo.checkpoints.savepoints.starting import begin_from, fork_of
from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.levels import Durability
from wallaroo.errors import CheckpointError, PeerError, WallarooError
from wallaroo.monitoring.metrics.progress import Recovery
from wallaroo.monitoring.metrics.status import ReplicaStatus
from wallaroo.network.key_files import read_key
from wallaroo.network.replica import WRITER, Replica
from wallaroo.processes import console
from wallaroo.runtime.batch.admission import AdmissionControl
from wallaroo.runtime.batch.batch_metrics import BatchMetrics
from wallaroo.runtime.batch.batches import Batches, BatchSetup
from wallaroo.runtime.batch.commit_protocol import BatchProtocol
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.runtime.batch.pacing import Pacer, RateLimit
from wallaroo.runtime.host import Host
from wallaroo.runtime.lifecycle.observer import Observer
from wallaroo.runtime.lifecycle.phases import Phases
from wallaroo.runtime.lifecycle.shutdown_stack import ShutdownStack
from wallaroo.runtime.lifecycle.sinks import RunSinks, open_sinks
from wallaroo.runtime.lifecycle.sources import RunSources
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.runtime.recovery import step_table, with_namespaces
from wallaroo.runtime.standby.former_run import FormerRun, end_children
from wallaroo.runtime.tasks.job import Deployment
from wallaroo.runtime.tasks.replay import Replay
from wallaroo.runtime.user_output.collector import Collector
from wallaroo.runtime.user_output.settings import UserOutput
from wallaroo.sources.interface import FedBy
from wallaroo.sources.log import Position, from_stored
from wallaroo.spool.format import folder_of
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.layout import SPOOL
from wallaroo.state.log.lease import LeaseHolder
from wallaroo.state.log.owners import owner_words
from wallaroo.state.log.snapshots import sizes_in
from wallaroo.state.replication.replicator import Replicator
from wallaroo.state.store.objects import CloudObjects
from wallaroo.state.store.store_log import StoreLog
from wallaroo.state.store.stored_checkpoint import StoredCheckpoint

COMMIT_S = 5.0  # for a commit in progress when a run has stopped waiting
_log = logging.getLogger("wallaroo.run")


@dataclass(frozen=True, slots=True)
class OpenedCheckpoint:
    """An open checkpoint, whose state and input fit the application."""

    checkpoint: Checkpoint
    compatibility: Compatibility
    sources: RunSources
    lease: LeaseHolder | None  # None: a temporary or a stored checkpoint has no standby
    taken_over: FormerRun | None = None  # the run that this one replaced

    @property
    def plan(self) -> Plan:
        """Return the plan to run, with the checkpoint's ids of its sinks."""
        return self.compatibility.plan

    @property
    def positions(self) -> dict[str, Position]:
        """Return the ends of the last commit, by source."""
        return _committed(self.checkpoint)

    def once_free(self, begin: Callable[[], None]) -> None:
        """Start something that needs an address which a run that was taken over may hold."""
        if self.taken_over is None:
            begin()
        else:
            self.taken_over.once_free(begin)

    @property
    def steps(self) -> tuple[str, ...]:
        dropped = with_namespaces(self.compatibility.dropped)
        return step_table(self.checkpoint.last, self.plan.step_names, dropped)


@dataclass(frozen=True, slots=True)
class RunComponents:
    checkpoint: Checkpoint
    sources: RunSources
    sinks: RunSinks
    batches: Batches
    accounts: BatchMetrics
    intake: AdmissionControl
    observer: Observer
    taken_over: FormerRun | None


def _committed(checkpoint: Checkpoint) -> dict[str, Position]:
    return from_stored(checkpoint.last.offsets) if checkpoint.last else {}


def open_state(
    spec: RunSpec, phases: Phases, stack: ShutdownStack, after: int | None = None
) -> OpenedCheckpoint:
    """Open the checkpoint; raise if the application cannot continue from it.

    ``after``: as in `open_checkpoint`.
    """
    options = spec.options
    if options.from_savepoint is not None:
        phases.enter("copying the savepoint")
        _begin_from_savepoint(spec, str(options.from_savepoint))
    phases.enter("opening the checkpoint")
    if options.is_taking_over:
        require_compatible(spec.site.root, spec.plan, options.allow_incompatible)
    stored = _stored(spec)
    checkpoint = open_checkpoint(
        spec.site.root,
        spec.is_durable,
        options.is_fresh,
        is_taking_over=options.is_taking_over,
        after=after,
        stored=stored,
        sync_s=None if spec.is_synced or not spec.is_durable else options.tuning.sync_s,
    )
    stack.add(checkpoint.release)
    replicator = _replicator(spec, checkpoint)
    if replicator is not None:
        stack.add(replicator.close)
        checkpoint = replace(checkpoint, elsewhere=replicator)
        spec.meter.identity.replica = partial(_replica_status, replicator)
    taken_over = FormerRun.of(checkpoint.root) if options.is_taking_over else None
    lease = None
    if spec.is_durable and stored is None:
        lease = _held_lease(checkpoint, stack, replicator)
    if taken_over is not None:
        end_children(taken_over.lease.claim)
    if replicator is not None:
        phases.enter("comparing the copy")
        replicator.begin(lambda: phases.is_stopping, phases.note)
    spec.meter.identity.epoch = stored.epoch if stored else checkpoint.claim.epoch
    fork = fork_of(checkpoint.root)
    replica = replicator.replica if replicator is not None else None
    sources = RunSources(spec, checkpoint.id, checkpoint.owner, fork, replica)
    stack.add(sources.close)
    compatibility = check_compatibility(
        checkpoint,
        spec.plan,
        options.allow_incompatible,
        partial(sources.require, _committed(checkpoint)),
    )
    for note in (*spec.plan.warnings, *compatibility.notes):
        _log.warning(note)
    spec.meter.recovered(Recovery(checkpoint.last.batch if checkpoint.last else -1))
    return OpenedCheckpoint(checkpoint, compatibility, sources, lease, taken_over)


def _begin_from_savepoint(spec: RunSpec, savepoint: str) -> None:
    options = spec.options
    line = begin_from(
        savepoint,
        spec.site.root,
        options.store_url,
        spec.plan,
        is_fork=options.is_fork,
        allow_incompatible=options.allow_incompatible,
    )
    if line:
        _log.info(line)


def _replicator(spec: RunSpec, checkpoint: Checkpoint) -> Replicator | None:
    """Return the object that copies commits to a second host, if commits wait for it."""
    options = spec.options
    if options.level is not Durability.REPLICATED:
        return None
    assert options.replica is not None
    assert options.replica_key is not None
    key = read_key(Path(options.replica_key), WRITER)
    replica = Replica(*options.replica, key.secret, key.certificate)
    return Replicator(
        checkpoint.root, replica, checkpoint.claim, checkpoint.id, options.tuning.sweep_every
    )


def _replica_status(replicator: Replicator) -> ReplicaStatus:
    return ReplicaStatus(replicator.replica.place, replicator.silent_s)


def _held_lease(
    checkpoint: Checkpoint, stack: ShutdownStack, replicator: Replicator | None
) -> LeaseHolder:
    given_back = replicator.end_in_order if replicator is not None else lambda: None
    lease = LeaseHolder(checkpoint.root, checkpoint.claim, given_back=given_back)
    stack.add(lease.close)
    lease.start()
    return lease


def _stored(spec: RunSpec) -> StoredCheckpoint | None:
    """Return the log of a checkpoint in an object store, before anything is claimed.

    Raises PeerError if the store cannot be used, CheckpointError if this machine cannot continue.
    """
    url = spec.options.store_url
    if not url:
        return None
    log = StoreLog(CloudObjects(url), owner_words())
    stored = StoredCheckpoint(log, spec.site.root, spec.options.tuning)
    if stored.look() and not spec.options.is_fresh:
        spools = spec.site.root / SPOOL
        for source in spec.plan.sources:
            name = source.config.name
            is_spooled = source.config.fed_by is not FedBy.ITSELF
            if is_spooled and name in stored.positions and not folder_of(spools, name).exists():
                raise CheckpointError(
                    f"source '{name}' stores its input on the machine that received it, and this "
                    f"one has none of it: the last run was {stored.last_owner}. Run the "
                    f"application there, or give --fresh to begin empty, or read from a log "
                    f"(Kafka, files, ...) to move freely."
                )
    return stored


def open_sources(
    opened: OpenedCheckpoint, phases: Phases, is_stopping: Callable[[], bool]
) -> dict[str, Position]:
    """Start accepting input; return the beginnings of sources without a position."""
    phases.enter("opening sources")
    try:
        opened.sources.start(is_stopping, opened.once_free)
    except PeerError as error:
        if opened.taken_over is None:
            raise
        raise opened.taken_over.held(error) from error
    return opened.sources.beginnings(opened.positions)


def open_components(
    spec: RunSpec,
    opened: OpenedCheckpoint,
    beginnings: dict[str, Position],
    phases: Phases,
    stack: ShutdownStack,
) -> RunComponents:
    """Open sinks and the host, and assemble the run."""
    phases.enter("opening sinks")
    try:
        sinks = open_sinks(spec, opened.plan, opened.checkpoint, stack)
    except WallarooError:
        put_back(opened.checkpoint, opened.compatibility.former)
        raise
    if not spec.is_host_open:
        open_host(spec, phases, stack)
        request_workers(spec.host, opened)
    deployment = _deployment(spec, opened, _user_output(spec, stack))
    setup = BatchSetup(opened.plan, deployment, opened.steps, opened.sources.logs, beginnings)
    components = _components(spec, opened, sinks, setup)
    stack.add(partial(components.batches.abandon, COMMIT_S))
    return components


def request_workers(host: Host, opened: OpenedCheckpoint) -> None:
    """Take over the workers as well; record them for the next take-over."""
    host.request_workers(opened.taken_over.lease.allocation if opened.taken_over else "")
    if opened.lease is not None:
        opened.lease.note_allocation(host.allocation)


def open_host(spec: RunSpec, phases: Phases, stack: ShutdownStack) -> None:
    """Start the processes that run tasks."""
    stack.add(spec.host.close)
    spec.host.open(spec.site, phases.enter)


def _user_output(spec: RunSpec, stack: ShutdownStack) -> UserOutput:
    """Collect user code's output if workers are local; remote ones write it to their logs."""
    level = spec.options.app_log_level
    if not spec.host.is_local:
        return UserOutput("", level, is_json=console.is_json())
    collector = Collector(spec.site.scratch)
    stack.add(collector.close)
    collector.start()
    return UserOutput(collector.address, level, os.getpid())


def _deployment(spec: RunSpec, opened: OpenedCheckpoint, user_output: UserOutput) -> Deployment:
    checkpoint = opened.checkpoint
    is_local = spec.host.is_local
    deployment = Deployment.of(
        opened.plan,
        _module_folders(spec.options.module_paths) if is_local else (),
        spec.site.root,
        opened.sources.logs_of_workers(),
        str(spec.view_root or checkpoint.view_root) if is_local else "",
        checkpoint.id,
        spec.is_synced,
        str(spec.site.stacks) if is_local else "",
    )
    remote = opened.sources.remote_checkpoint()
    if remote is not None:
        deployment = replace(deployment, storage=remote, outbox_root="", is_durable=False)
    return replace(
        deployment, tuning=spec.options.tuning, user_output=user_output, view=checkpoint.view
    )


def standby_deployment(spec: RunSpec) -> Deployment:
    """Return everything workers need to import the application before there is input."""
    folders = _module_folders(spec.options.module_paths)
    root = spec.site.root
    return Deployment.of(spec.plan, folders, root, (), "", "", False, str(spec.site.stacks))


def _module_folders(own: tuple[str, ...]) -> tuple[str, ...]:
    return (*own, *(path for path in sys.path if path and path not in own))


def _components(
    spec: RunSpec, opened: OpenedCheckpoint, sinks: RunSinks, setup: BatchSetup
) -> RunComponents:
    plan = opened.plan
    pace = _pace(spec, opened, setup)
    limits = pace.limits if pace else None
    intake = AdmissionControl(spec.host.admit, spec.options.tuning.pace.events_first, limits)
    accounts = BatchMetrics(plan, spec.meter)
    accounts.state_known(sizes_in(opened.checkpoint.storage, opened.checkpoint.last))
    housekeeping = _housekeeping(spec, opened, setup)
    batches = Batches(
        setup,
        protocol=BatchProtocol(
            plan,
            opened.checkpoint,
            sinks.committers,
            housekeeping,
            setup.logs_by_name,
            setup.steps,
            _log.warning,
        ),
        housekeeping=housekeeping,
        runner=spec.host,
        accounts=accounts,
        pacer=Pacer.for_run(spec.options, plan),
        allow=intake.allow,
        done=pace.batch_done if pace else lambda commit, events: None,
    )
    observer = Observer(plan, setup.logs, batches, sinks.committers, spec.meter)
    return RunComponents(
        opened.checkpoint,
        opened.sources,
        sinks,
        batches,
        accounts,
        intake,
        observer,
        opened.taken_over,
    )


def _pace(spec: RunSpec, opened: OpenedCheckpoint, setup: BatchSetup) -> Replay | RateLimit | None:
    """Return the bound on the speed of input; None if there is none."""
    per_s = spec.options.rate_limit
    if per_s is None:
        return Replay.for_run(spec.options, opened.plan, opened.positions)
    return RateLimit(per_s, setup.logs_by_name, {**setup.beginnings, **opened.positions})


def _housekeeping(spec: RunSpec, opened: OpenedCheckpoint, setup: BatchSetup) -> Housekeeping:
    """Remove everything that no retained commit needs; at low latency, append to one file."""
    has_state = bool(setup.steps)
    housekeeping = Housekeeping.for_run(spec.options, opened.checkpoint, opened.plan, has_state)
    if spec.options.is_resident:
        tuning = spec.options.tuning
        opened.checkpoint.commits.append_from_here(
            tuning.commit_run_bytes_max, tuning.commit_run_max
        )
    return housekeeping
