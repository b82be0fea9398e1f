"""The page on sinks: its sink works as the page says."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import types
from pathlib import Path

import pytest

from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.sinks.interface import WriteContext

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"


def test_the_sink_on_the_page_commits_a_batch_once_over_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(
        r"```python\n(import sqlite3.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert found
    module = types.ModuleType("page_on_sinks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(found[1], str(PAGE), "exec"), module.__dict__)
    config = module.__dict__["TableSinkConfig"](str(tmp_path / "table.db"))
    writer = config.writer(WriteContext("s", 0, 0, "a", tmp_path, True))
    writer.write([b"one", b"two"])
    tokens = json.loads(json.dumps([writer.prepare(), None]))
    for _ in range(2):
        committer = config.committer("s", tmp_path, True)
        committer.recover(history_to(0), tokens)
        committer.commit(commit_of(0), tokens)
        assert committer.status().committed_batch == 0
        committer.close(0)
    rows = sqlite3.connect(tmp_path / "table.db").execute("SELECT value FROM output").fetchall()
    assert rows == [("one",), ("two",)]
    committer = config.committer("s", tmp_path, True)
    with pytest.raises(RuntimeError, match=r"commit .* which is gone"):
        committer.recover(history_to(0, line="b"), tokens)
    committer.close(0)
