"""A driver without Spark: the real tasks, state, sinks and commit protocol, and a shuffle that is a
list.

``main(FOLDER, PORT)``: fill the spool, process it batch by batch, let all output leave, end.  Run
again after a crash, it continues, as a run does.  With ``MINIATURE_LATENCY=low`` in
the environment, state stays open and commits are appended, as at low latency, in smaller batches.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tests.faults.lasting_runner import LastingRunner
from tests.verification.applications import sequence
from tests.verification.cases import Sequence
from wallaroo.dataflow.plan.model import Plan
from wallaroo.instrumentation.tuning import Tuning
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.protocols.framing import framer
from wallaroo.runtime.batch.admission import plan_ends
from wallaroo.runtime.batch.batch_metrics import BatchMetrics
from wallaroo.runtime.batch.batches import Batches, BatchSetup
from wallaroo.runtime.batch.commit_protocol import BatchProtocol, history_of
from wallaroo.runtime.batch.housekeeping import Housekeeping
from wallaroo.runtime.batch.pacing import Pacer
from wallaroo.runtime.in_process import InProcessRunner
from wallaroo.runtime.tasks.job import Deployment
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.sources.log import LogContext
from wallaroo.spool import folder_of
from wallaroo.spool.writer import SpoolWriter
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint

KEY_GROUPS, TASKS = 2, 2
# and a snapshot of everything in every batch, and a sweep: so two batches are enough to have
# something to delete
RETAIN = 1
BATCHES, CHUNKS_PER_BATCH, EVENTS_PER_CHUNK = 2, 2, 40
TUNING = Tuning(snapshot_every=1, log_commits_max=0, sweep_every=1, sweep_s=0.0, refresh_s=0.0)
SOURCE, STEP, SEED = "Sequence", "slide window", 5


def main(place: str, port: str) -> None:
    """Do all that is left to do."""
    folder = Path(place)
    plan = plan_of_sequence(folder, int(port))
    checkpoint = open_checkpoint(folder / "checkpoint", is_durable=True)
    spool = folder_of(checkpoint.root / "spool", SOURCE)
    fill(spool, plan)
    log = plan.sources[0].config.open_log(LogContext(checkpoint.root / "spool", checkpoint.id))
    committers = open_sinks(plan, checkpoint)
    is_low = os.environ.get("MINIATURE_LATENCY") == "low"
    if is_low:
        checkpoint.commits.append_from_here(0)  # a run for each commit, so that some go
    housekeeping = Housekeeping(checkpoint, KEY_GROUPS, RETAIN, is_frequent=is_low, tuning=TUNING)
    protocol = BatchProtocol(plan, checkpoint, committers, housekeeping, {SOURCE: log}, (STEP,))
    view = str(checkpoint.view_root)
    deployment = Deployment.of(plan, (), checkpoint.root, (log,), view, checkpoint.id, True)
    runner = LastingRunner(TASKS) if is_low else InProcessRunner(TASKS)

    def batches_with(inline_bytes_max: int) -> Batches:
        tuning = replace(TUNING, inline_bytes_max=inline_bytes_max)
        return Batches(
            BatchSetup(
                plan,
                replace(deployment, tuning=tuning),
                (STEP,),
                (log,),
                {SOURCE: log.beginning()},
            ),
            protocol=protocol,
            housekeeping=housekeeping,
            runner=runner,
            accounts=BatchMetrics(plan, RunMeter("miniature", 0.0)),
            pacer=Pacer(1.0),
        )

    parts = 2 if is_low else 1
    events_max = CHUNKS_PER_BATCH * EVENTS_PER_CHUNK // parts
    for batch in range(protocol.last.batch + 1 if protocol.last else 0, BATCHES * parts):
        # output in files, output in the commit, by turns
        batches = batches_with(batch % 2 * 4096)
        batches.run(plan_ends(batches.ends, {SOURCE: log}, events_max))
    for committer in committers.values():
        committer.close(180.0)
    checkpoint.release()


def plan_of_sequence(folder: Path, port: int) -> Plan:
    """Build the application."""
    args = [
        "--in",
        f"{SOURCE}@127.0.0.1:1",
        "--out",
        f"127.0.0.1:{port}",
        "--files",
        str(folder / "files"),
    ]
    return replace(sequence.application_setup(args).plan, key_groups=KEY_GROUPS)  # type: ignore[attr-defined]


def fill(spool: Path, plan: Plan) -> None:
    """Bring the spool to its full length, as an ingress does: from where it ends."""
    events = Sequence(SEED).payloads(SOURCE, BATCHES * CHUNKS_PER_BATCH * EVENTS_PER_CHUNK)
    writer, frame = SpoolWriter(spool, is_durable=True), framer(plan.sources[0].config.wire_framing)
    for start in range(writer.position.events, len(events), EVENTS_PER_CHUNK):
        chunk = events[start : start + EVENTS_PER_CHUNK]
        writer.append(b"".join(map(frame, chunk)), len(chunk), 1_000_000_000)
        writer.publish()
    writer.close()


def open_sinks(plan: Plan, checkpoint: Checkpoint) -> dict[str, SinkCommitter]:
    """Open and recover every sink."""
    committers, last = {}, checkpoint.last
    for sink in plan.sinks:
        folder = checkpoint.root / "outbox" / sink.name
        folder.mkdir(parents=True, exist_ok=True)
        committers[sink.name] = sink.config.committer(sink.name, folder, True)
        tokens = last.sinks.get(sink.name, []) if last else []
        committers[sink.name].recover(history_of(checkpoint, sink.name), tokens)
    return committers
