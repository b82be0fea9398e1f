"""Checkpoints that earlier versions wrote open, and their runs continue as if never stopped.

The data hold state of every kind, written by both hosts on Spark (``python -m tests.stored``).  A
test that fails here means that users could not upgrade: read the old form, do not write the data
again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.stored.runner import DATA, HALF, HOSTS, IN_PROCESS, SOURCES, everything, run, unpack


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("application", SOURCES)
def test_a_stored_checkpoint_is_continued(application: str, host: str, tmp_path: Path) -> None:
    unpack(DATA / f"{application}-{host}.tar.xz", tmp_path)
    assert sum(map(len, everything(tmp_path).values())) >= HALF

    run(tmp_path, application, IN_PROCESS, slice(HALF, None))

    expected = json.loads((DATA / f"{application}.json").read_text())
    assert everything(tmp_path) == expected
