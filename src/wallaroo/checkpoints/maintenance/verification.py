"""Verification of a checkpoint: its damage, and the consequences.

Everything in the checkpoint is read; nothing is locked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from wallaroo.checkpoints.maintenance.check_log import check_log, read_commits
from wallaroo.checkpoints.maintenance.check_outputs import check_outputs
from wallaroo.checkpoints.maintenance.check_spool import check_spool
from wallaroo.checkpoints.maintenance.check_view import check_view
from wallaroo.checkpoints.maintenance.survey import Checker, Damage, Survey
from wallaroo.checkpoints.savepoints.manifest import damages
from wallaroo.checkpoints.savepoints.places import read_manifest
from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import PLAN, SAVEPOINT, read_identity, read_plan

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
