"""What of a batch travels to its tasks."""

from __future__ import annotations

from typing import Any, cast

from wallaroo.runtime.tasks.job import BatchJob
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
