"""What of a batch travels to its tasks."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from wallaroo.runtime.tasks.job import BatchJob, CarriedLogs
from wallaroo.sources import LogContext
from wallaroo.state.log.commits import Commit


def test_the_newest_commits_travel_to_tasks_without_their_output() -> None:
    commits = tuple(
        Commit(batch, {"in": [batch, batch]}, sinks={"out": ["a token"]}, id=f"id {batch}")
        for batch in range(3)
    )
    job = BatchJob(cast(Any, None), 3, 1, ((),), 2, commits, ("count",), 2, 1, True)

    sent = job.without_output()

    assert [(each.id, each.offsets, each.sinks) for each in sent.commits] == [
        (f"id {batch}", {"in": [batch, batch]}, {}) for batch in range(3)
    ]
    assert sent.version == job.version
    assert [each.sinks for each in job.commits] == [{"out": ["a token"]}] * 3


def test_a_source_of_a_module_beside_the_application_is_imported_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What carries it has arrived before: with it come the folders of modules."""
    (tmp_path / "own_source.py").write_text(
        "from wallaroo.sources import ReplayableSource\n"
        "class Own(ReplayableSource):\n"
        "    def end(self, partition): return 1\n"
        "    def read(self, partition, start, end): return [start]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_source").Own("own")
    sent = pickle.dumps(CarriedLogs((own.open_log(LogContext(tmp_path)),)))
    monkeypatch.delitem(sys.modules, "own_source")
    sys.path.remove(str(tmp_path))

    arrived = pickle.loads(sent)
    again = pickle.loads(pickle.dumps(arrived))

    for logs in (arrived, again):
        with pytest.raises(ModuleNotFoundError, match="own_source"):
            logs[0]
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    assert [logs[0].head().position.place for logs in (arrived, again)] == [{"0": 1}] * 2
