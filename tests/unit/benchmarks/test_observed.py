"""Watching batches from inside the driver."""

from __future__ import annotations

from benchmarks.lib.batch_log import observed
from wallaroo.runtime.batch.batches import Batches


def test_what_it_times_is_there_and_is_left_as_it_was() -> None:
    """A function that moves elsewhere would end every benchmark that watches."""
    before = Batches.run

    with observed() as seen:
        assert Batches.run is not before

    assert Batches.run is before
    assert seen == []
