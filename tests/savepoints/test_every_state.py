"""Savepoints of state of every kind, that start as if the application had never stopped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.savepoints.test_saving import quiet
from tests.stored.runner import DATA, HALF, HOSTS, IN_PROCESS, everything, run, unpack
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.savepoints.saving import save


def state_of(folder: Path) -> dict[tuple[int, str, bytes], bytes]:
    state = CheckpointReader(folder).at()
    return {
        (group, step, key): value
        for group in range(state.groups)
        for (step, key), value in state.group(group).items()
    }


@pytest.mark.parametrize(
    ("application", "host", "command"),
    [
        ("accounts", "low", IN_PROCESS),
        ("amounts", "micro-batch", IN_PROCESS),
        ("joins", "micro-batch", IN_PROCESS),
        ("accounts", "micro-batch", HOSTS["low"]),
    ],
    ids=["accounts", "amounts", "joins", "from micro-batch to resident"],
)
def test_windows_timers_joins_lists_and_tables_are_continued_from_a_savepoint(
    application: str, host: str, command: Sequence[str], tmp_path: Path
) -> None:
    """Plain state, windows, timers, expiring state, joins, lists, aggregations, rows of tables."""
    unpack(DATA / f"{application}-{host}.tar.xz", tmp_path)
    original = (tmp_path / "checkpoint").rename(tmp_path / "original")
    save(str(original), str(tmp_path / "saved"), quiet)
    assert state_of(tmp_path / "saved") == state_of(original)

    run(tmp_path, application, (*command, "--from-savepoint", "saved"), slice(HALF, None))

    assert everything(tmp_path) == json.loads((DATA / f"{application}.json").read_text())
