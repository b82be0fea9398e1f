"""Blocks of the task that makes them: what cannot change is not packed."""

from __future__ import annotations

from typing import Any

import pytest

import wallaroo
from wallaroo.engine.exchange import Exchange
from wallaroo.engine.failures import stop_on_error
from wallaroo.engine.keys import group_of_key, tasks_by_group
from wallaroo.engine.operators.exits import emit_by_key
from wallaroo.engine.packing import FRAMES, PICKLED, Kept, Packing, packing_of

OWN = 1
SERIALIZED = packing_of((str.encode, bytes.decode))


@wallaroo.key_extractor("last digit")
def last_digit(event: Any) -> str:
    digits = event[0] if isinstance(event, tuple | list) else event
    return str(digits[-1])


@wallaroo.computation("answer")
def answer(event: Any) -> Any:
    return event


def blocks(events: list[Any], packing: Packing, kept: int) -> dict[int, Any]:
    """What is sent to each task."""
    exchange = Exchange(1, 0, OWN, tasks_by_group(2, 16), packing, kept=kept)
    emit = emit_by_key(last_digit, exchange, stop_on_error(last_digit), stop_on_error(answer))
    for event in events:
        emit(None, event)
    return dict(exchange.drain(0, 1))


def owner(key: str) -> int:
    """Which of two tasks has a key."""
    return tasks_by_group(2, 16)[group_of_key(key, 16)]


def unpacked(block: Any, packing: Packing) -> Any:
    packed = block.packed
    return tuple(packed if isinstance(packed, Kept) else packing.unpack(packed))


@pytest.mark.parametrize(
    ("events", "packing"),
    [
        ([f"{number}" for number in range(100, 200)], PICKLED),
        ([(f"{number}", number, 0.5) for number in range(100, 200)], PICKLED),
        ([b"%d" % number for number in range(100, 200)], FRAMES),
    ],
    ids=["texts", "tuples", "frames"],
)
def test_what_cannot_change_stays_as_it_is_in_its_own_task_only(
    events: list[Any], packing: Packing
) -> None:
    kept, all_packed = (blocks(events, packing, task) for task in (OWN, -1))

    assert isinstance(kept[OWN].packed, Kept)
    assert kept[OWN].packed_bytes == 0
    assert not any(isinstance(block.packed, Kept) for block in (kept[0], *all_packed.values()))
    for task in (0, 1):
        assert unpacked(kept[task], packing) == unpacked(all_packed[task], packing)


@pytest.mark.parametrize(
    ("events", "packing"),
    [
        ([[f"{number}"] for number in range(100, 200)], PICKLED),
        ([f"{number}" for number in range(100, 199)] + [["7"] * 2], PICKLED),
        ([f"{number}" for number in range(100, 200)], SERIALIZED),
    ],
    ids=["lists", "texts and a list", "an application's own form"],
)
def test_what_can_change_is_packed_in_its_own_task_too(events: list[Any], packing: Packing) -> None:
    """No two events may share an object, and what happens to one later must not be seen."""
    kept, all_packed = (blocks(events, packing, task) for task in (OWN, -1))

    mutable = [task for task, block in kept.items() if not isinstance(block.packed, Kept)]
    assert mutable
    for task in (0, 1):
        assert unpacked(kept[task], packing) == unpacked(all_packed[task], packing)
    for value in (value for block in kept.values() for value in unpacked(block, packing)[1]):
        assert all(value is not event for event in events if isinstance(event, list))


def test_a_bucket_that_was_kept_begins_again_with_nothing() -> None:
    """Its routes hold the very lists: what was given away is another one."""
    exchange = Exchange(1, 0, OWN, tasks_by_group(2, 16), FRAMES, kept=OWN)
    emit = emit_by_key(last_digit, exchange, stop_on_error(last_digit), stop_on_error(answer))
    digits = [b"%d" % number for number in range(10)]
    owner_of = {digit: owner(last_digit.function(digit)) for digit in digits}
    own = next(digit for digit in digits if owner_of[digit] == OWN)
    emit(None, own)
    ((_, first),) = exchange.drain(0, 1)
    emit(None, own)
    emit(None, own)
    ((_, second),) = exchange.drain(0, 1)

    assert (len(first.packed.values), len(second.packed.values)) == (1, 2)  # type: ignore[union-attr]
