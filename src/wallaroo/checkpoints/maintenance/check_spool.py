"""Check of the chunks of all spools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from wallaroo.checkpoints.maintenance.survey import Damage, Survey
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.sources.joined.log import own_offset
from wallaroo.sources.log import Position
from wallaroo.spool.format import Boundary, Segment, folder_of, segments_of
from wallaroo.spool.reader import SpoolReader
from wallaroo.state.log.layout import SPOOL

SUFFIX = ".spool"


def check_spool(survey: Survey) -> Iterator[Damage]:
    """Read every chunk that is published and not removed."""
    for folder in sorted((survey.root / SPOOL).glob(f"*{SUFFIX}")):
        reader = SpoolReader(folder)
        try:
            head = reader.head().position
        except CheckpointError as error:
            yield Damage(str(folder / "head"), str(error), "No run can start. Restore the file.")
            continue
        segments = segments_of(folder)
        ends = [segment.start.byte for segment in segments[1:]] + [head.byte]
        for segment, end in zip(segments, ends, strict=True):
            if what := _read(survey, reader, segment, min(end, head.byte)):
                file = str(segment.path.relative_to(survey.root))
                yield Damage(file, what, _consequence(survey, folder, min(end, head.byte)))


def _read(survey: Survey, reader: SpoolReader, segment: Segment, end: int) -> str:
    try:
        for chunk in reader.chunks(segment.start, Boundary(end)):
            survey.note("chunks", len(chunk.frames))
    except (CheckpointError, PeerError, FileNotFoundError) as error:
        if segment.path.exists():  # else the run has just removed it
            return str(error)
    return ""


def _consequence(survey: Survey, folder: Path, end: int) -> str:
    offsets = survey.last.offsets if survey.last else {}
    names = [name for name in offsets if folder_of(folder.parent, name) == folder]
    name = names[0] if names else unquote(folder.name.removesuffix(SUFFIX))
    if names and own_offset(Position.from_json(offsets[name])).after >= end:
        return (
            f"Its events are processed. A rollback to a commit that would read them again is not "
            f"possible for source '{name}'; a run is not affected."
        )
    return (
        f"Source '{name}' has accepted events in it that are not processed yet; a run stops at "
        f"them. Restore the file from a backup of the checkpoint."
    )
