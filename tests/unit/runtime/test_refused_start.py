"""A start that is refused when its sinks are opened, and the starts after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import wallaroo
from tests.conformance.apps.steps import sink, source
from wallaroo.api.application import Application
from wallaroo.errors import WallarooError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

Sinks = tuple[wallaroo.FileSinkConfig, wallaroo.FileSinkConfig]


def two(folder: Path, sinks: Sinks, name: str = "two") -> Application:
    """Copy the lines of two files, each to a sink."""
    pairs = zip(("a", "b"), sinks, strict=True)
    return wallaroo.build_application(
        name, *(source(folder, each).to_sink(config) for each, config in pairs)
    )


def named(folder: Path, *places: tuple[str, str]) -> Sinks:
    """Return two sinks, each with a name and the name of its file."""
    first, second = (
        wallaroo.FileSinkConfig(folder / file, sink(folder).encoder, form="lines", name=name)
        for name, file in places
    )
    return first, second


def append(folder: Path, text: str) -> None:
    for name in ("a", "b"):
        with (folder / f"{name}.txt").open("a") as file:
            file.write(f"{name} {text}\n")


def run(application: Application, folder: Path, *, is_allowed: bool = False) -> None:
    """Run to the end of the input.  Raises the error that the start is refused with."""
    options = RunOptions(
        checkpoint=folder / "state", status_address=None, allow_incompatible=is_allowed
    )
    started = Run(application, options, InProcessHost())
    started.start()
    assert started.wait(400)
    if started.exception is not None:
        raise started.exception


def test_a_refused_start_leaves_the_plan_as_it_was(tmp_path: Path) -> None:
    """Sinks whose files are swapped by mistake, then sinks without their names."""
    right = named(tmp_path, ("x", "x.out"), ("y", "y.out"))
    wrong = (
        named(tmp_path, ("x", "y.out"), ("y", "x.out")),
        named(tmp_path, ("", "x.out"), ("", "y.out")),
    )
    append(tmp_path, "1")
    run(two(tmp_path, right), tmp_path)
    before = json.loads((tmp_path / "state" / "plan.json").read_text())

    append(tmp_path, "2")
    with pytest.raises(WallarooError, match=r"is written by|output of"):
        run(two(tmp_path, wrong[0]), tmp_path)
    assert json.loads((tmp_path / "state" / "plan.json").read_text()) == before

    run(two(tmp_path, wrong[1]), tmp_path)  # by their places, they are the same
    append(tmp_path, "3")
    run(two(tmp_path, right), tmp_path)
    for name, file in (("a", "x.out"), ("b", "y.out")):
        lines = (tmp_path / file).read_text().splitlines()
        assert lines == [f"{name} {number}" for number in (1, 2, 3)]


def test_a_refused_start_does_not_rename_the_checkpoints_application(tmp_path: Path) -> None:
    right = named(tmp_path, ("x", "x.out"), ("y", "y.out"))
    swapped = named(tmp_path, ("x", "y.out"), ("y", "x.out"))
    append(tmp_path, "1")
    run(two(tmp_path, right), tmp_path)
    with pytest.raises(WallarooError):
        run(two(tmp_path, swapped, "other"), tmp_path, is_allowed=True)
    append(tmp_path, "2")
    run(two(tmp_path, right), tmp_path)
    assert (tmp_path / "x.out").read_text() == "a 1\na 2\n"
