"""``wallaroo sink``: the skipping of damaged or missing output.

Where it runs: a terminal, while no run holds the checkpoint.  ``wallaroo sink skip CHECKPOINT SINK
--batch N`` abandons such output, so that a run can continue.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wallaroo.cli.application.checkpoints import checkpoint_here
from wallaroo.connectors.tcp.progress import NAME
from wallaroo.connectors.tcp.skip import Skipped, skip_batch
from wallaroo.durable.commit_id import CommitId
from wallaroo.errors import CheckpointError
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.layout import FORMAT


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("sink", help="give up damaged output of a TCP sink")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    skip = verbs.add_parser(
        "skip",
        help="skip one batch of a sink's output",
        description=(
            "Skip one batch of a TCP sink's committed output that is damaged or missing, and "
            "record that. The receiver never gets it; everything after it is sent. Output whose "
            "commit is still retained is restored from it instead."
        ),
    )
    skip.add_argument(
        "checkpoint", type=checkpoint_here, metavar="CHECKPOINT", help="the checkpoint's folder"
    )
    skip.add_argument("sink", metavar="SINK", help="the sink's name, as in errors and tables")
    skip.add_argument("--batch", type=int, required=True, metavar="N", help="number of the batch")
    skip.set_defaults(handler=skip_command)


def skip_command(arguments: argparse.Namespace) -> int:
    """Skip the batch and print what is lost."""
    root: Path = arguments.checkpoint
    if not (root / FORMAT).exists():
        raise CheckpointError(f"{root} is not a checkpoint: it has no {FORMAT}.")
    checkpoint = open_checkpoint(root, is_durable=True)
    try:
        staging = _outbox(root, arguments.sink)
        commit, tokens = _commit(checkpoint, arguments.sink, arguments.batch)
        history = checkpoint.commits.history(checkpoint.id, arguments.sink)
        skipped = skip_batch(staging, commit, tokens, history=history)
    finally:
        checkpoint.release()
    print(described(skipped, arguments.sink))
    return 0


def described(skipped: Skipped, sink: str) -> str:
    """Return a text about the outcome for the batch.

    >>> print(described(Skipped(7, 1200, -1, 5000, True), "out"))
    Skipped batch 7 of out: 1,200 bytes are lost, an unknown number of outputs.
    The next run continues with what was committed after it.
    A part of it may have been sent. A receiver that resumes has to be cut back to 5000 bytes first.
    """
    if skipped.is_restored:
        return (
            f"Batch {skipped.batch} of {sink} is restored from its commit: nothing is lost. The "
            f"next run sends it."
        )
    outputs = f"{skipped.outputs:,}" if skipped.outputs >= 0 else "an unknown number of"
    lines = [
        f"Skipped batch {skipped.batch} of {sink}: {skipped.bytes:,} bytes are lost, {outputs} "
        f"outputs.",
        "The next run continues with what was committed after it.",
    ]
    if skipped.may_have_begun:
        lines.append(
            f"A part of it may have been sent. A receiver that resumes has to be cut back to "
            f"{skipped.at} bytes first."
        )
    return "\n".join(lines)


def _outbox(root: Path, sink: str) -> Path:
    outboxes = {path.parent.name: path.parent for path in (root / "outbox").glob(f"*/{NAME}")}
    if sink not in outboxes:
        names = ", ".join(sorted(outboxes)) or "none"
        raise CheckpointError(f"{root} has no TCP sink {sink!r}; it has: {names}.")
    return outboxes[sink]


def _commit(checkpoint: Checkpoint, sink: str, batch: int) -> tuple[CommitId, list[Any]]:
    """Return the batch's commit and the sink's tokens in it, if it is retained."""
    if batch not in checkpoint.commits.batches():
        return CommitId(checkpoint.id, batch), []
    commit = checkpoint.commits.read(batch)
    return CommitId(checkpoint.id, batch, commit.id), commit.sinks.get(sink, [])
