"""The rollback of sinks' output to an older commit: all, or none.

Where it runs: the command that rolls a checkpoint back; no run holds the checkpoint.

The invariant: no sink is touched before every sink has reported that it can follow.  A crash in
between leaves sinks that were moved and sinks that were not; the same call again finishes the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError
from wallaroo.sinks.interface import CANNOT_FOLLOW, SinkCommitter, SinkConfig


def roll_back_sinks(
    sinks: Mapping[str, SinkConfig],
    outbox: Path,
    to: CommitId,
    tokens: Mapping[str, Sequence[Any]],
    *,
    is_durable: bool,
    before_first: Callable[[], None] = lambda: None,
) -> None:
    """Move every sink's visible output back to what it was after commit ``to``.

    ``tokens`` are that commit's, by sink; ``before_first`` is called once every sink has reported
    that it can follow, before the first one is touched.  Raises CheckpointError, with nothing
    touched, that names every sink that cannot follow and why.
    """
    fixed = {name: CANNOT_FOLLOW for name, config in sinks.items() if not config.can_roll_back}
    _refuse(sinks, fixed)
    with ExitStack() as closing:
        committers: dict[str, SinkCommitter] = {}
        for name, config in sinks.items():
            committers[name] = config.committer(name, outbox / name, is_durable)
            closing.callback(committers[name].close, 0.0)
        reasons: dict[str, str] = {}
        for name, committer in committers.items():
            try:
                committer.check_rollback(to, tokens.get(name, ()))
            except CheckpointError as error:
                reasons[name] = str(error)
        _refuse(sinks, reasons)
        before_first()
        for name, committer in committers.items():
            committer.rollback(to, tokens.get(name, ()))


def _refuse(sinks: Mapping[str, SinkConfig], reasons: Mapping[str, str]) -> None:
    if reasons:
        listed = "\n".join(
            f"  - {name} ({sinks[name].label}): {why}" for name, why in reasons.items()
        )
        raise CheckpointError(
            f"These sinks cannot follow the checkpoint back:\n{listed}\nNothing was touched."
        )
