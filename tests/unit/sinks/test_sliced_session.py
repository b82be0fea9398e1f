"""Sessions that deliver slices: outputs that were accepted before a failure are not sent again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.sinks.identities import commit_of
from wallaroo.sinks.queued.at_least_once import Progress, Slice, SlicedSession
from wallaroo.sinks.queued.pending import PendingBatch


class Accepting(SlicedSession):
    """A system that accepts some outputs of each slice, from the first on."""

    def __init__(self, progress: Progress, counts: list[int]):
        super().__init__("c", progress, 10)
        self.counts = counts
        self.sent: list[tuple[int, list[bytes]]] = []

    def deliver(self, part: Slice) -> None:
        self.sent.append((part.first, list(part.outputs)))
        if self.counts:
            self.accepted = self.counts.pop(0)
            raise OSError


class Outputs:
    def outputs(self) -> list[bytes]:
        return [b"a", b"b", b"c"]


def test_a_slice_that_failed_is_delivered_again_without_its_first_outputs_that_were_accepted() -> (
    None
):
    progress = Progress()
    session = Accepting(progress, [2, 0])
    batch: Any = PendingBatch(commit_of(0), 0, 3, 3, ())

    for _ in range(2):
        with pytest.raises(OSError):
            session.write(batch, iter([Outputs()]))  # type: ignore[list-item]  # as staged output
    session.write(batch, iter([Outputs()]))  # type: ignore[list-item]

    assert session.sent == [(0, [b"a", b"b", b"c"]), (2, [b"c"]), (2, [b"c"])]
    assert (progress.done, progress.failures) == (3, 0)
