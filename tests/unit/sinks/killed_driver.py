"""A driver in miniature, to be killed: stages, records and commits batches as the real one does.

Run again on the same folder it continues where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.sinks.identities import INLINE_BYTES_MAX, commit_of, history_to
from wallaroo.instrumentation.faults import fault_point
from wallaroo.sinks.interface import SinkConfig, WriteContext

OutputsOf = Callable[[int, int], list[Any]]  # batch, task


def stage(
    config: SinkConfig[Any], staging: Path, batch: int, tasks: int, outputs_of: OutputsOf
) -> list[Any]:
    """Return one batch's tokens, in output order."""
    tokens = []
    assert config.encoder is not None
    for task in range(tasks):
        context = WriteContext("s", batch, task, "a", staging, True, INLINE_BYTES_MAX)
        writer = config.writer(context)
        outputs = [config.encoder.function(output) for output in outputs_of(batch, task)]
        writer.write(config.encoder.pack_all(outputs))
        tokens.append(writer.prepare())
    return tokens


def commit_batches(
    config: SinkConfig[Any],
    folder: Path,
    batches: int,
    stage_batch: Callable[[Any, Path, int], list[Any]],
    drain_s: float,
) -> None:
    """Commit the batches that are missing."""
    staging = folder / "staging"
    commit_file = folder / "commit.json"
    committer = config.committer("s", staging, True)
    last, tokens = json.loads(commit_file.read_text()) if commit_file.exists() else (-1, [])
    committer.recover(history_to(last), tokens)
    for batch in range(last + 1, batches):
        tokens = stage_batch(config, staging, batch)
        partial = commit_file.with_suffix(".tmp")
        partial.write_text(json.dumps([batch, tokens]))
        fault_point("commit.before")
        partial.rename(commit_file)
        fault_point("commit.after")
        committer.commit(commit_of(batch), tokens)
    committer.close(drain_s)
    assert committer.status().pending_bytes == 0, committer.status()
