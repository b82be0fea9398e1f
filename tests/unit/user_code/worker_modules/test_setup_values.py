"""What a set-up left in the application's modules is put into those of workers."""

from __future__ import annotations

import argparse
import datetime
import sys
from types import ModuleType
from typing import Any

import pytest

from wallaroo.user_code.worker_modules.setup_values import (
    BYTES_MAX,
    Place,
    changed,
    noted,
    put_in_place,
)

NAME = "settings_of_a_test"
TEXT = """
import argparse, datetime
LIMIT = 1
CONFIG = {"limit": 1}
LIMITS = []
NAMES = {"a"}
BEGAN = datetime.datetime(2026, 1, 1)
OPTIONS = argparse.Namespace()
UNCHANGED = {"x": [1, 2]}


class State:
    start = 1

    def method(self):
        return self.start


class Config:
    def __init__(self):
        self.limit = 1


CONFIG_OBJECT = Config()
"""


def module() -> Any:
    created = ModuleType(NAME)
    exec(TEXT, vars(created))
    return created


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    created = module()
    monkeypatch.setitem(sys.modules, NAME, created)
    return created


def test_values_that_a_set_up_changed_are_carried_and_others_are_not(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = noted([driver])
    driver.LIMIT = 7
    driver.CONFIG["limit"] = 7
    driver.LIMITS.append(7)
    driver.NAMES |= {"b"}
    driver.BEGAN = datetime.datetime(2026, 2, 2)  # noqa: DTZ001  # as the module has it
    driver.OPTIONS = argparse.Namespace(limit=7)
    driver.State.start = 7
    driver.CONFIG_OBJECT.limit = 7
    driver.NEW = "new"

    packed, left_out = changed(before, [driver])

    assert left_out == []
    assert b"UNCHANGED" not in packed
    worker = module()
    monkeypatch.setitem(sys.modules, NAME, worker)
    held_elsewhere = worker.CONFIG, worker.LIMITS
    put_in_place(packed)
    assert (worker.LIMIT, worker.CONFIG, worker.LIMITS) == (7, {"limit": 7}, [7])
    assert ({"a", "b"}, "new") == (worker.NAMES, worker.NEW)
    assert worker.BEGAN.month == 2
    assert worker.OPTIONS.limit == worker.State().method() == worker.CONFIG_OBJECT.limit == 7
    assert held_elsewhere == ({"limit": 7}, [7])


def test_nothing_is_carried_if_nothing_changed(driver: Any) -> None:
    assert changed(noted([driver]), [driver]) == (b"", [])
    put_in_place(b"")


class Unrestorable:
    def __setstate__(self, state: Any) -> None:
        raise ValueError("not here")

    def __getstate__(self) -> Any:
        return 1


@pytest.mark.parametrize(
    "value",
    [lambda: None, bytes(BYTES_MAX + 1), Unrestorable()],
    ids=["code", "large", "unrestorable"],
)
def test_a_value_that_cannot_be_carried_is_named(driver: Any, value: Any) -> None:
    before = noted([driver])
    driver.CONFIG["hook"] = value

    assert changed(before, [driver]) == (b"", [Place(NAME, "", "CONFIG")])
