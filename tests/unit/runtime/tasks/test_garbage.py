"""When resident tasks look for cyclic garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from wallaroo.runtime.tasks import garbage
from wallaroo.runtime.tasks.garbage import IDLE_S, Garbage


class Knot:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def own_schedule() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_garbage_of_epochs_goes_between_them_where_it_is_much() -> None:
    collector = Garbage()
    knot = Knot()
    found = weakref.ref(knot)
    del knot

    collector.after_batch()
    assert found() is not None
    for _ in range(garbage.YOUNG_MAX):
        Knot()
    collector.after_batch()

    assert found() is None


def test_a_costly_collection_is_not_repeated_at_once_unless_garbage_is_plenty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(garbage.time, "monotonic", lambda: now_s)
    original = gc.collect

    def slow(generation: int = 2) -> int:
        nonlocal now_s
        now_s += 0.125
        return original(generation)

    collector = Garbage()
    monkeypatch.setattr(garbage.gc, "collect", slow)

    def is_collected(knots: int) -> bool:
        knot = Knot()
        found = weakref.ref(knot)
        del knot
        for _ in range(knots):
            Knot()
        collector.after_batch()
        return found() is None

    assert is_collected(garbage.YOUNG_MAX)
    assert not is_collected(garbage.YOUNG_MAX)
    assert is_collected(garbage.YOUNG_MOST)
    assert not is_collected(garbage.YOUNG_MAX)
    now_s += 0.125 * garbage.REST
    assert is_collected(garbage.YOUNG_MAX)


def test_everything_is_collected_when_no_epoch_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Garbage()
    assert collector.idle_s is None
    old = Knot()
    found = weakref.ref(old)
    collector.after_batch()
    gc.collect(1)  # it survives
    del old

    assert collector.idle_s is not None
    assert collector.idle_s >= IDLE_S
    collector.collect()

    assert found() is None
    assert collector.idle_s is None


def test_everything_is_collected_now_and_then_under_a_load_that_never_ends() -> None:
    patient = Garbage()
    eager = Garbage(at_least_s=0.0)
    old = Knot()
    found = weakref.ref(old)
    gc.collect(1)
    del old

    patient.after_batch()
    assert found() is not None
    eager.after_batch()

    assert found() is None


def test_objects_of_a_process_that_is_not_ours_alone_are_not_frozen() -> None:
    gc.unfreeze()

    Garbage(freezes=False)

    assert gc.get_freeze_count() == 0
    assert not gc.isenabled()
