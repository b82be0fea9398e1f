"""Tables of a checkpoint's commits, sinks and dead letters.

Where it runs: a terminal, or a worker of the Spark that reads a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from wallaroo.checkpoints.inspection.compatibility import may_wait
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.tables.columns import batch_of, columns_of
from wallaroo.dataflow.plan.model import DEAD_LETTERS
from wallaroo.errors import CheckpointError
from wallaroo.sinks.target_record import last_left
from wallaroo.state.log.commits import CommitLog
from wallaroo.state.log.layout import OUTBOX, PLAN, read_plan
from wallaroo.state.log.storage import LocalStorage

Row = dict[str, Any]
FILE = "file"  # the kind of the sink whose output is read here


def commit_rows(root: Path) -> Iterator[Row]:
    """Yield the retained commits, oldest first."""
    for commit in CheckpointReader(root).commits():
        yield {
            "commit": commit.batch,
            "time": datetime.fromtimestamp(commit.time_ms / 1000, UTC),
            "edit": commit.edit or None,
            "events": {name: events for name, (_, events) in commit.offsets.items()},
            "outputs": commit.outputs,
            "entries": sum(delta.entries for delta in commit.deltas),
            "delta_bytes": sum(delta.size for delta in commit.deltas),
        }


def sink_rows(root: Path) -> Iterator[Row]:
    """Yield the sinks with the last commit whose output was sent, if known."""
    reader = CheckpointReader(root)
    log = CommitLog(LocalStorage(str(root), False))
    newest = reader.at().commit
    for name, noted in _sinks(root).items():
        outbox = root / OUTBOX / name
        left = last_left(outbox)
        yield {
            "sink": name,
            "kind": noted["kind"],
            "target": noted.get("target"),
            "address": noted.get("address") or None,
            "newest_commit": newest.batch,
            "left_commit": left.batch if left is not None else None,
            "may_wait": may_wait(outbox, log.history(reader.id, name)),
        }


def dead_letter_rows(root: Path) -> Iterator[Row]:
    """Yield the dead letters of an application that writes them into a file."""
    noted = _sinks(root).get(DEAD_LETTERS)
    if noted is None:
        raise CheckpointError(
            f"the application of {root} has no sink for dead letters. Give it one: "
            f"build_application(..., dead_letters=FileSinkConfig(...))."
        )
    if noted["kind"] != FILE:
        raise CheckpointError(
            f"the dead letters of {root} go to {noted['kind']} {noted.get('target', '')}. Read "
            f"them there; those in a file are shown here."
        )
    path = Path(noted["target"])
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CheckpointError(
            f"the dead letters in {path} cannot be read: {error.strerror}."
        ) from error
    for line in lines:
        if not line.endswith(b"\n"):  # being written
            return
        try:
            letter = json.loads(line)
        except ValueError:
            letter = None
        yield letter if isinstance(letter, dict) else {"line": line.decode(errors="replace")}


def _sinks(root: Path) -> dict[str, dict[str, str]]:
    try:
        sinks: dict[str, dict[str, str]] = json.loads(read_plan(root))["sinks"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{root / PLAN} cannot be read, and it names the sinks: {error}. Restore it from a "
            f"backup of the checkpoint."
        ) from error
    return sinks


ROWS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "commits": commit_rows,
    "sinks": sink_rows,
    "dead_letters": dead_letter_rows,
}
FIRST = {"commits": "commit", "sinks": "sink", "dead_letters": "step"}  # a column of each


def table_of(root: Path, name: str) -> pa.Table:
    """Return one of the tables, read at this moment."""
    rows = list(ROWS[name](root))
    columns: dict[str, list[Any]] = columns_of(rows) if rows else {FIRST[name]: []}
    return pa.Table.from_batches([batch_of(columns)])
