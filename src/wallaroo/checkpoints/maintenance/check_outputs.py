"""Check of committed output that has not been delivered.

It reads lists of pending batches, and staged files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.maintenance.survey import Damage, Survey
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks.queued.pending import read_pending
from wallaroo.sinks.staging import read_staged
from wallaroo.state.log.layout import OUTBOX

LOST = (
    "Sink '{sink}' cannot send this output, nor what comes after it. Restore the file from a "
    "backup of the checkpoint."
)


def check_outputs(survey: Survey) -> Iterator[Damage]:
    """Read every pending list, and the staged output that it or a retained commit names."""
    for folder in sorted(path for path in (survey.root / OUTBOX).glob("*") if path.is_dir()):
        for path in sorted(folder.glob("pending/*.json")):
            try:
                pending = read_pending(path)
            except (CheckpointError, PeerError, FileNotFoundError) as error:
                if path.exists():
                    yield _damage(survey, path, folder.name, error)
                continue
            survey.note("pending batches", path.stat().st_size if path.exists() else 0)
            yield from _check_staged(survey, folder, pending.tokens, path)
        for commit in survey.commits.values():
            yield from _check_staged(survey, folder, commit.sinks.get(folder.name, []), None)


def _check_staged(
    survey: Survey, folder: Path, tokens: Sequence[Any], named_by: Path | None
) -> Iterator[Damage]:
    for token in tokens:
        if not isinstance(token, Mapping) or "crc" not in token:
            continue  # the sink does not stage files
        path = folder / str(token.get("file", ""))
        if token.get("file") and not path.exists() and (named_by is None or not named_by.exists()):
            continue  # its output was delivered
        try:
            staged = read_staged(folder, token)  # type: ignore[arg-type]  # checked by reading it
            survey.note("staged outputs", len(staged.body))
        except (CheckpointError, KeyError, TypeError, ValueError) as error:
            if named_by is None or named_by.exists():
                yield _damage(survey, path, folder.name, error)


def _damage(survey: Survey, path: Path, sink: str, error: Exception) -> Damage:
    return Damage(str(path.relative_to(survey.root)), str(error), LOST.format(sink=sink))
