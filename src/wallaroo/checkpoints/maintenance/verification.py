"""Verification of a checkpoint: its damage, and the consequences.

Everything in the checkpoint is read; nothing is locked and nothing is written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from wallaroo.checkpoints.maintenance.check_log import (
    Checker,
    Damage,
    Survey,
    check_log,
    read_commits,
)
from wallaroo.checkpoints.savepoints.places import damages, read_manifest
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sinks.queued.pending import read_pending
from wallaroo.sinks.staging import read_staged
from wallaroo.sources.joined.log import own_offset
from wallaroo.sources.log import Position
from wallaroo.spool.format import Boundary, Segment, folder_of, segments_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.state.log.layout import OUTBOX, PLAN, SAVEPOINT, SPOOL, VIEW, read_identity, read_plan
from wallaroo.state.views.view_folders import view_name

VIEW_HARMLESS = (
    "Nothing is lost: a run builds this part of the view again from the commits when it reads it. "
    "Check the disk."
)


def check_view(survey: Survey) -> Iterator[Damage]:
    """Read every value of the view that a run would use until the next reboot."""
    root = survey.root / VIEW / view_name(survey.line.view_of(survey.id))
    shards = [shard for shard in sorted(root.glob("[0-9]*")) if (shard / "data.mdb").exists()]
    while shards:
        results, died_by = _read_view_apart(shards)
        for shard, result in zip(shards, results, strict=False):
            survey.read["view entries"] += int(result["entries"])
            survey.bytes += int(result["bytes"])
            if result["wrong"] and shard.exists():
                yield _view_damage(survey, shard, str(result["wrong"]))
        if died_by and shards[len(results)].exists():
            yield _view_damage(survey, shards[len(results)], died_by)
        shards = shards[len(results) + 1 :]


def _read_view_apart(shards: list[Path]) -> tuple[list[dict[str, Any]], str]:
    """Return the findings of a process in the shards that it finished, and why it died.

    A damaged B-tree may end the process that reads it.
    """
    reader = subprocess.run(
        [sys.executable, "-m", "wallaroo.checkpoints.maintenance.view_reader", *map(str, shards)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    results = [json.loads(line) for line in reader.stdout.splitlines()]
    if len(results) == len(shards):
        return results, ""
    if reader.returncode < 0:
        name = signal.Signals(-reader.returncode).name
        return results, f"A process that reads it dies ({name})."
    return results, f"It cannot be read: {''.join(reader.stderr.splitlines()[-1:])}"


def _view_damage(survey: Survey, shard: Path, what: str) -> Damage:
    return Damage(str((shard / "data.mdb").relative_to(survey.root)), what, VIEW_HARMLESS)


SPOOL_SUFFIX = ".spool"


def check_spool(survey: Survey) -> Iterator[Damage]:
    """Read every chunk that is published and not removed."""
    for folder in sorted((survey.root / SPOOL).glob(f"*{SPOOL_SUFFIX}")):
        reader = SpoolReader(folder)
        try:
            head = reader.head().position
        except CheckpointError as error:
            yield Damage(str(folder / "head"), str(error), "No run can start. Restore the file.")
            continue
        segments = segments_of(folder)
        ends = [segment.start.byte for segment in segments[1:]] + [head.byte]
        for segment, end in zip(segments, ends, strict=True):
            if what := _read_segment(survey, reader, segment, min(end, head.byte)):
                file = str(segment.path.relative_to(survey.root))
                yield Damage(file, what, _spool_consequence(survey, folder, min(end, head.byte)))


def _read_segment(survey: Survey, reader: SpoolReader, segment: Segment, end: int) -> str:
    try:
        for chunk in reader.chunks(segment.start, Boundary(end)):
            survey.note("chunks", len(chunk.frames))
    except (CheckpointError, PeerError, FileNotFoundError) as error:
        if segment.path.exists():  # else the run has just removed it
            return str(error)
    return ""


def _spool_consequence(survey: Survey, folder: Path, end: int) -> str:
    offsets = survey.last.offsets if survey.last else {}
    names = [name for name in offsets if folder_of(folder.parent, name) == folder]
    name = names[0] if names else unquote(folder.name.removesuffix(SPOOL_SUFFIX))
    if names and own_offset(Position.from_json(offsets[name])).after >= end:
        return (
            f"Its events are processed. A rollback to a commit that would read them again is not "
            f"possible for source '{name}'; a run is not affected."
        )
    return (
        f"Source '{name}' has accepted events in it that are not processed yet; a run stops at "
        f"them. Restore the file from a backup of the checkpoint."
    )


OUTPUT_LOST = (
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
                    yield _output_damage(survey, path, folder.name, error)
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
                yield _output_damage(survey, path, folder.name, error)


def _output_damage(survey: Survey, path: Path, sink: str, error: Exception) -> Damage:
    return Damage(str(path.relative_to(survey.root)), str(error), OUTPUT_LOST.format(sink=sink))


PLAN_REFUSED = (
    "No run starts from this checkpoint. Restore the file from a backup of the checkpoint, or "
    "remove it: the next run then compares nothing."
)
SAVEPOINT_REFUSED = "No run starts from this savepoint. Use another one."


def check_plan(survey: Survey) -> Iterator[Damage]:
    """Read the plan, unless it was removed, which is a way out of damage."""
    try:
        read_plan(survey.root)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        if survey.commits:
            yield Damage(PLAN, str(error), PLAN_REFUSED)


def check_savepoint(survey: Survey) -> Iterator[Damage]:
    """Compare every file with the manifest, if the folder is a savepoint."""
    if not (survey.root / SAVEPOINT).exists():
        return
    try:
        manifest = read_manifest(str(survey.root))
    except CheckpointError as error:
        yield Damage(SAVEPOINT, str(error), SAVEPOINT_REFUSED)
        return
    for file in manifest.files:
        survey.note("saved files", file.size)
    for name, defect in damages(survey.root, manifest):
        yield Damage(name, defect, SAVEPOINT_REFUSED)


# in this order; the first one reads the commits for those after it
CHECKERS: tuple[Checker, ...] = (
    check_log,
    check_view,
    check_spool,
    check_outputs,
    check_plan,
    check_savepoint,
)
ATTEMPTS = 5  # per checker, while a run deletes files that it no longer needs


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a verification.

    ``whole`` are the commits whose state was read in full.
    """

    damages: tuple[Damage, ...]
    read: dict[str, int]  # number of items read, by kind
    bytes: int
    whole: tuple[int, ...]


def verify(root: Path, checkers: Iterable[Checker] = CHECKERS) -> Report:
    """Read the whole checkpoint.  Raises CheckpointError if it is missing or of another format."""
    survey = Survey(root, read_identity(root), {})
    damages: dict[str, Damage] = {}
    for checker in checkers:
        for damage in _settled(checker, survey):
            damages.setdefault(damage.file, damage)  # the first one knows the file best
    return Report(tuple(damages.values()), dict(survey.read), survey.bytes, survey.whole)


def _settled(checker: Checker, survey: Survey) -> Iterator[Damage]:
    """Yield a checker's reports, repeating it while new commits appear.

    An attempt counts if it found no damage, if no commit was made meanwhile, or if it is the last
    of ``ATTEMPTS``: files that a run deletes meanwhile are not damaged.
    """
    damages: list[Damage] = []
    read = survey.read.copy()
    size = survey.bytes
    for _ in range(ATTEMPTS):
        survey.read = read.copy()
        survey.bytes = size
        before = max(read_commits(survey.root)[0], default=-1)
        damages = list(checker(survey))
        if not damages or max(read_commits(survey.root)[0], default=-1) == before:
            break
    yield from damages
