"""The protocol of a log in an object store holds in seeded histories, and each rule is needed.

``STORE_HISTORIES=20000 pytest tests/stores/test_simulation.py`` runs more of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.stores.model import ModelObjects
from tests.stores.simulation import History, HistoryError
from wallaroo.state.store.objects import NoAnswerError, TakenKeyError
from wallaroo.state.store.records import Head, Record, encode
from wallaroo.state.store.store_log import FILES, Listed, StoreLog

HISTORIES = int(os.environ.get("STORE_HISTORIES", "300"))
PLANTED_MAX = 3000  # histories in which a planted bug has to show itself
RARE = {"BelievesLateFences": 2726}  # where to begin with one that few histories show


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("ERROR", "wallaroo.run")


def test_no_reported_commit_is_lost_or_doubled() -> None:
    """Whatever is killed, stopped, lost, late or repeated."""
    fences = images = commits = files = 0
    for seed in range(HISTORIES):
        history = History(seed)
        history.run()
        fences += history.fences
        images += history.images
        commits += len(history.reported)
        files += history.files

    assert fences > 4 * HISTORIES
    assert images > 3 * HISTORIES
    assert commits > 10 * HISTORIES
    assert files < commits / 2  # each commit has one


def test_a_fence_that_came_too_late_is_not_taken_for_the_commit_before_it() -> None:
    """The newest object was deleted while a run was stopped, and a late fence has its number."""
    History(11712).run()


class BelievesConflicts(StoreLog):
    """A number that is taken is taken by us: the object is not read."""

    def _is_created(self, record: Record, tries: int = 1) -> bool:
        with contextlib.suppress(TakenKeyError, NoAnswerError):
            self._objects.create(f"log/{record.head.number:020d}", encode(record))
        return True


class ComparesNothing(StoreLog):
    """An object of this number is there, so it is ours: its identity is not compared."""

    def _is_created(self, record: Record, tries: int = 1) -> bool:
        return super()._is_created(record) or self.read(record.head.number) is not None


class Overwrites(StoreLog):
    """A store that ignores conditions, and no probe."""

    def __init__(self, objects: ModelObjects, *args: Any, **options: Any):
        super().__init__(objects, *args, **options)
        objects.create = objects.put  # type: ignore[method-assign]


class DeletesFences(StoreLog):
    """Housekeeping deletes fences, too."""

    def sweep(self, listed: Listed, image: Head, needed: Iterable[str]) -> None:
        self._fences = ()
        super().sweep(listed, image, needed)


class FencesBehindTheEnd(StoreLog):
    """A fence is not checked: what came before it may be deleted."""

    def _is_followed(self, head: Head) -> bool:
        return False


class BelievesLateFences(StoreLog):
    """What an old list leads to is not checked by what came before it."""

    def _is_last(self, head: Head) -> bool:
        return not self._is_followed(head)


class MarksNothing(StoreLog):
    """What follows a fence is deleted without a mark."""

    def sweep(self, listed: Listed, image: Head, needed: Iterable[str]) -> None:
        super().sweep(listed, image, needed)
        for key in [key for key in self._objects._model.objects if key.startswith("swept/")]:  # type: ignore[attr-defined]
            self._objects._model.objects.pop(key)  # type: ignore[attr-defined]


class SweepsNewestFirst(StoreLog):
    """Objects are deleted in another order than that of their numbers."""

    def sweep(self, listed: Listed, image: Head, needed: Iterable[str]) -> None:
        super().sweep(replace(listed, numbers=listed.numbers[::-1]), image, needed)


class ListsAfterwards(StoreLog):
    """What is deleted is listed after the image was announced, so it may be the next owner's."""

    def sweep(self, listed: Listed, image: Head, needed: Iterable[str]) -> None:
        files = self._asked(lambda: self._objects.names(FILES))
        super().sweep(replace(listed, files=files), image, needed)


class SweepsBeforeAnnouncing(StoreLog):
    """Objects are deleted once the image is stored, while no object names it."""

    def put_image(self, head: Head, file: Any) -> Listed:
        listed = super().put_image(head, file)
        self.sweep(listed, head, (each.name for each in head.files))
        return listed


@pytest.mark.parametrize(
    "planted",
    [
        BelievesConflicts,
        ComparesNothing,
        Overwrites,
        DeletesFences,
        FencesBehindTheEnd,
        BelievesLateFences,
        MarksNothing,
        SweepsNewestFirst,
        ListsAfterwards,
        SweepsBeforeAnnouncing,
    ],
)
def test_a_planted_bug_is_found(planted: type[StoreLog]) -> None:
    """Each rule of the log's invariants is needed."""

    def new_log(objects: ModelObjects) -> StoreLog:
        return planted(objects, "a driver", sleep=lambda seconds: None)

    def is_found(seed: int) -> bool:
        try:
            History(seed, new_log).run()
        except (HistoryError, AssertionError):
            return True
        return False

    first = RARE.get(planted.__name__, 0)
    assert any(map(is_found, range(first, first + PLANTED_MAX)))
