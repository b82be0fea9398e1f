"""The sink side of a run: one committer per sink.

A committer is recovered from the checkpoint's last commit.
"""

from __future__ import annotations

import time
from functools import partial

from wallaroo.dataflow.plan.model import Plan
from wallaroo.durable.folders import make_private
from wallaroo.runtime.batch.commit_protocol import history_of
from wallaroo.runtime.lifecycle.shutdown_stack import ShutdownStack
from wallaroo.runtime.lifecycle.spec import RunSpec
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.state.checkpoint import Checkpoint

CHECK_S_MAX = 5.0  # for the first answers of all sinks' systems, before the engine starts


class RunSinks:
    """The committers of a run, by sink name."""

    def __init__(self, committers: dict[str, SinkCommitter]):
        self.committers = committers

    @property
    def has_sent_everything(self) -> bool:
        """Return whether no committed output is waiting to be sent."""
        return not any(committer.backlog() for committer in self.committers.values())

    def poll(self) -> None:
        """Poll the committers, so that none hangs in a call that never returns."""
        for committer in self.committers.values():
            committer.poll()

    def is_full(self, bytes_max: int) -> bool:
        """Return whether a sink has more than ``bytes_max`` bytes to send."""
        return any(committer.backlog() > bytes_max for committer in self.committers.values())

    def close(self, drain_s: float) -> None:
        """Allow up to ``drain_s`` for sending committed output, then release everything."""
        for committer in self.committers.values():
            committer.close(drain_s)


def open_sinks(spec: RunSpec, plan: Plan, checkpoint: Checkpoint, stack: ShutdownStack) -> RunSinks:
    """Open every sink, and let it complete the last commit."""
    committers: dict[str, SinkCommitter] = {}
    tokens = checkpoint.last.sinks if checkpoint.last else {}
    for sink in plan.sinks:
        staging = spec.site.root / "outbox" / sink.name
        make_private(staging, is_durable=spec.is_durable)
        committer = sink.config.committer(sink.name, staging, spec.is_durable)
        committers[sink.name] = committer
        stack.add(partial(committer.close, spec.options.drain_s))
        committer.recover(history_of(checkpoint, sink.name), tokens.get(sink.name, []))
    until = time.monotonic() + CHECK_S_MAX
    for committer in committers.values():
        committer.check(max(0.0, until - time.monotonic()))
    return RunSinks(committers)
