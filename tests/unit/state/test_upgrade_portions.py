"""Portions of an upgrade in the background, over the objects in a view."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.unit.state.test_scan import GROUPS, STEPS, commit
from wallaroo.engine.blocks.keys import encode_key, group_of
from wallaroo.engine.blocks.packing import PICKLED, Packing
from wallaroo.engine.columnar.state_table import StateTable
from wallaroo.engine.stores.background_upgrades import Portion, Reached, is_old, upgrade_portion
from wallaroo.engine.stores.evolution import stored_version, with_version
from wallaroo.engine.stores.keyed_state import KeyedState
from wallaroo.engine.stores.last_use import last_use_of, with_last_use
from wallaroo.engine.stores.ttl_state import TTLState
from wallaroo.state.checkpoint import open_checkpoint
from wallaroo.state.log.delta import Entry
from wallaroo.state.task_state import States, TaskState
from wallaroo.state.views.environments import close_environments
from wallaroo.steps.kinds import StateComputation, Timing
from wallaroo.steps.state_versions import Evolution, evolution_of, register
from wallaroo.vectorized.steps import BatchStateComputation

KEYS = [f"k{number}" for number in range(600)] + ["long " * 200, "longer " * 200]
TOTALS = STEPS.index("totals")
Opened = Callable[[Callable[[bytes], bytes]], TaskState]


@pytest.fixture
def total() -> Iterator[Any]:
    """The class of version 2; objects of version 1 have other attributes."""
    module = ModuleType("portioned_totals")
    sys.modules[module.__name__] = module
    exec(
        "class Total:\n    state_version = 2\n    def __init__(self, tenfold=0):\n"
        "        self.tenfold = tenfold\n",
        module.__dict__,
    )
    cls = module.__dict__["Total"]
    register(cls, 1, lambda fields: cls(fields["count"] * 10))
    yield cls
    del sys.modules[module.__name__]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """A function that opens the state of all key groups, each key's stored in some form."""
    checkpoint = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    states = []

    def open_state(stored: Callable[[bytes], bytes]) -> TaskState:
        groups: dict[int, list[Entry]] = {}
        for key in KEYS:
            encoded = encode_key(key)
            entry = Entry(TOTALS, encoded, stored(encoded))
            groups.setdefault(group_of(encoded, GROUPS), []).append(entry)
        history = commit(checkpoint, 0, groups)
        states.append(TaskState(tmp_path / "view", GROUPS, (0, GROUPS), STEPS, checkpoint.id))
        states[0].catch_up(history)
        return states[0]

    yield open_state
    for state in states:
        state.close()
    checkpoint.release()
    close_environments()


def first_version(total: Any) -> bytes:
    old = object.__new__(total)
    old.count = 7
    return pickle.dumps(old, 5)


def all_portions(
    state: TaskState, touched: KeyedState, evolution: Evolution, units: int, *, is_count: bool,
    packing: Packing = PICKLED,
) -> tuple[int, int, int]:  # fmt: skip
    """Do portions until the end; return their number, and the objects looked at and old ones."""
    cursors = dict.fromkeys(range(GROUPS), b"")
    portions = objects = old = 0

    def scan(group: int, key: bytes, limit: int) -> States:
        nonlocal objects
        for found in state.states_after("totals", group, key, limit):
            objects += 1
            yield found

    while cursors:
        portion = Portion("totals", cursors, units, is_count)
        reached: dict[int, Reached] = upgrade_portion(
            pickle.loads(pickle.dumps(portion)),
            range(GROUPS),
            touched,
            is_old(touched, packing, evolution),
            scan,
            state.reader("totals"),
        )
        assert reached
        portions += 1
        old += sum(each.old for each in reached.values())
        for group, (cursor, _) in reached.items():
            if cursor is None:
                del cursors[group]
            else:
                cursors[group] = cursor
    return portions, objects, old


@pytest.mark.parametrize("ttl_ns", [None, 10**12])
def test_each_object_is_looked_at_once_and_old_ones_are_written(
    opened: Opened, total: Any, ttl_ns: int | None
) -> None:
    raw = first_version(total)
    raw = raw if ttl_ns is None else with_last_use(raw, 77)
    state = opened(lambda encoded: raw)
    step: Any = StateComputation(
        lambda event, own: None, "totals", total, timing=Timing(ttl_ns=ttl_ns)
    )
    evolution = evolution_of(total, False)
    kind = KeyedState if ttl_ns is None else TTLState
    touched = kind(step, state.reader("totals"), PICKLED, evolution)
    touched.load("k5").tenfold = 4
    touched.drop("k6")

    counted = all_portions(state, touched, evolution, 100, is_count=True)
    assert counted[1:] == (len(KEYS), len(KEYS))
    assert counted[0] > len(KEYS) // 100
    assert set(touched.live) == {"k5"}

    upgraded = all_portions(state, touched, evolution, 100, is_count=False)
    assert upgraded[1:] == counted[1:]
    assert upgraded[0] > 3 * counted[0]
    changes = dict(touched.changes())
    assert changes.pop("k6") is None
    assert set(changes) == set(KEYS) - {"k6"}
    assert {stored_version(changed or b"") for changed in changes.values()} == {2}
    values = {key: pickle.loads(changed or b"").tenfold for key, changed in changes.items()}
    assert values.pop("k5") == 4
    assert set(values.values()) == {70}
    if ttl_ns is not None:
        assert last_use_of(changes["k7"] or b"") == 77


def test_objects_of_vectorized_steps_are_upgraded(opened: Opened, total: Any) -> None:
    raw = first_version(total)
    state = opened(lambda encoded: raw)
    step: Any = BatchStateComputation(lambda *given: None, "totals", total)
    evolution = evolution_of(total, False)
    touched = StateTable(step, state.reader("totals"), PICKLED, evolution)
    assert all_portions(state, touched, evolution, 5_000, is_count=False)[2] == len(KEYS)
    changes = dict(touched.changes())
    assert len(changes) == len(KEYS)
    assert {pickle.loads(changed or b"").tenfold for changed in changes.values()} == {70}


def test_nothing_is_loaded_where_all_is_new(opened: Opened, total: Any) -> None:
    raw = with_version(pickle.dumps(total(3), 5), 2)
    state = opened(lambda encoded: raw)
    step: Any = StateComputation(lambda event, own: None, "totals", total)
    evolution = evolution_of(total, True)
    touched = KeyedState(step, state.reader("totals"), PICKLED, evolution)
    found = all_portions(state, touched, evolution, 5_000, is_count=False)
    assert found[1:] == (len(KEYS), 0)
    assert not touched.live


def test_large_objects_make_a_portion_shorter(opened: Opened, total: Any) -> None:
    raw = with_version(pickle.dumps(total(b"x" * 51_200), 5), 2)
    state = opened(lambda encoded: raw)
    step: Any = StateComputation(lambda event, own: None, "totals", total)
    evolution = evolution_of(total, False)
    touched = KeyedState(step, state.reader("totals"), PICKLED, evolution)
    assert all_portions(state, touched, evolution, 1_000, is_count=True)[0] > len(KEYS) // 11
