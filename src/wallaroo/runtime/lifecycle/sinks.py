"""The sink side of a run: a committer per sink, brought to where the checkpoint ends.

Where it runs: driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.plan.model import Plan
from wallaroo.runtime.commit_protocol import history_of
from wallaroo.runtime.lifecycle.closing import Closers
from wallaroo.sinks.interface import SinkCommitter
from wallaroo.state.checkpoint import Checkpoint


class SinkSide:
    """The committers of a run, by sink name."""

    def __init__(self, committers: dict[str, SinkCommitter]):
        self.committers = committers

    @property
    def has_sent_everything(self) -> bool:
        """Whether no committed output waits to leave."""
        return not any(committer.backlog() for committer in self.committers.values())

    def poll(self) -> None:
        """Look after what sends, so that none waits for a call that never returns."""
        for committer in self.committers.values():
            committer.poll()

    def is_full(self, bytes_max: int) -> bool:
        """Whether a sink has more to send than that."""
        return any(committer.backlog() > bytes_max for committer in self.committers.values())

    def close(self, drain_s: float) -> None:
        """Let committed output leave for at most this long, then release everything."""
        for committer in self.committers.values():
            committer.close(drain_s)


@dataclass(frozen=True, slots=True)
class SinkClosing:
    """How a run closes its sinks."""

    closers: Closers
    drain_s: float


def open_sinks(
    plan: Plan, outbox: Path, checkpoint: Checkpoint, is_durable: bool, closing: SinkClosing
) -> SinkSide:
    """Open every sink and let it finish what the last commit left unfinished."""
    committers: dict[str, SinkCommitter] = {}
    tokens = checkpoint.last.sinks if checkpoint.last else {}
    for sink in plan.sinks:
        staging = outbox / sink.name
        make_private(staging, is_durable=is_durable)
        committer = committers[sink.name] = sink.config.committer(sink.name, staging, is_durable)
        closing.closers.add(partial(committer.close, closing.drain_s))
        committer.recover(history_of(checkpoint, sink.name), tokens.get(sink.name, []))
    return SinkSide(committers)
