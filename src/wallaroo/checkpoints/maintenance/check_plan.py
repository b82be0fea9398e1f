"""Check of the plan beside a checkpoint, with which a run compares its application."""

from __future__ import annotations

from collections.abc import Iterator

from wallaroo.checkpoints.maintenance.survey import Damage, Survey
from wallaroo.state.log.layout import PLAN, read_plan

REFUSED = (
    "No run starts from this checkpoint. Restore the file from a backup of the checkpoint, or "
    "remove it: the next run then compares nothing."
)


def check_plan(survey: Survey) -> Iterator[Damage]:
    """Read the plan, unless it was removed, which is a way out of damage."""
    try:
        read_plan(survey.root)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        if survey.commits:
            yield Damage(PLAN, str(error), REFUSED)
