"""Modules that changed since a worker process imported them."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wallaroo.user_code.worker_modules import edited
from wallaroo.user_code.worker_modules.edited import forget_changed, stamps

NAMES = ("edited_rules", "edited_user")


class Project:
    """Two modules of an application, one of which imports a name of the other."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._written = 10**9

    def write(self, factor: int) -> None:
        rules = self._folder / "edited_rules.py"
        rules.write_text(f"def rule(value):\n    return {factor} * value\n")
        (self._folder / "edited_user.py").write_text("from edited_rules import rule\n")
        self._written += 10
        os.utime(rules, (self._written, self._written))
        importlib.invalidate_caches()

    def forget(self) -> None:
        for name in NAMES:
            sys.modules.pop(name, None)

    def rule(self, value: int) -> Any:
        return importlib.import_module("edited_user").rule(value)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(edited, "_imported", {})
    project = Project(tmp_path)
    project.write(1)
    yield project
    project.forget()


def test_a_module_that_was_edited_is_imported_again_with_those_that_use_it(
    project: Project,
) -> None:
    assert project.rule(3) == 3
    forget_changed({name: stamps()[name] for name in NAMES})
    assert project.rule(3) == 3

    project.write(5)
    forget_changed({name: stamps()[name] for name in NAMES})

    assert project.rule(3) == 15


def test_modules_that_did_not_change_stay(project: Project) -> None:
    project.rule(3)
    module = sys.modules["edited_user"]
    for _ in range(2):
        forget_changed({name: stamps()[name] for name in NAMES})

    assert sys.modules["edited_user"] is module


def test_installed_modules_and_this_package_are_none_of_the_users() -> None:
    names = stamps().keys()

    assert "tests.unit.user_code.worker_modules.test_edited" in names
    assert not [name for name in names if name.partition(".")[0] in ("pytest", "json", "wallaroo")]
