"""Check of a savepoint's files against its manifest."""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.checkpoints.maintenance.survey import Damage, Survey
from wallaroo.checkpoints.savepoints.manifest import damages
from wallaroo.checkpoints.savepoints.places import read_manifest
from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import SAVEPOINT

REFUSED = "No run starts from this savepoint. Use another one."


def check_savepoint(survey: Survey) -> Iterator[Damage]:
    """Compare every file with the manifest, if the folder is a savepoint."""
    if not (survey.root / SAVEPOINT).exists():
        return
    try:
        manifest = read_manifest(str(survey.root))
    except CheckpointError as error:
        yield Damage(SAVEPOINT, str(error), REFUSED)
        return
    for file in manifest.files:
        survey.note("saved files", file.size)
    for name, defect in damages(survey.root, manifest):
        yield Damage(name, defect, REFUSED)
