"""Check of the values of this host's view.

The values are read in a process of their own, as a damaged B-tree may end it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.maintenance.survey import Damage, Survey
from wallaroo.state.log.layout import VIEW
from wallaroo.state.views.view_folders import view_name

HARMLESS = (
    "Nothing is lost: a run builds this part of the view again from the commits when it reads it. "
    "Check the disk."
)


def check_view(survey: Survey) -> Iterator[Damage]:
    """Read every value of the view that a run would use until the next reboot."""
    root = survey.root / VIEW / view_name(survey.line.view_of(survey.id))
    shards = [shard for shard in sorted(root.glob("[0-9]*")) if (shard / "data.mdb").exists()]
    while shards:
        results, died_by = _read_apart(shards)
        for shard, result in zip(shards, results, strict=False):
            survey.read["view entries"] += int(result["entries"])
            survey.bytes += int(result["bytes"])
            if result["wrong"] and shard.exists():
                yield _damage(survey, shard, str(result["wrong"]))
        if died_by and shards[len(results)].exists():
            yield _damage(survey, shards[len(results)], died_by)
        shards = shards[len(results) + 1 :]


def _read_apart(shards: list[Path]) -> tuple[list[dict[str, Any]], str]:
    """Return the findings of a process in the shards that it finished, and why it died."""
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


def _damage(survey: Survey, shard: Path, what: str) -> Damage:
    return Damage(str((shard / "data.mdb").relative_to(survey.root)), what, HARMLESS)
