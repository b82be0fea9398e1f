"""``wallaroo plan`` on a vectorized state whose dtype changed, and its trial of stored rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.inspection.conftest import begin  # noqa: F401  # fixture
from wallaroo.checkpoints.inspection.compatibility import check_compatibility
from wallaroo.cli.application.loading import load_application
from wallaroo.state.checkpoint import open_checkpoint

APPLICATION = """
import numpy as np

import wallaroo


@wallaroo.batch_key_extractor
def key_of(rows: list) -> list:
    return rows


@wallaroo.batch_state_computation("total", state=np.dtype({fields}))
def total(rows: list, at, states):
    return rows


def application_setup(args):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", "in.txt"))
    totals = lines.key_by(key_of).to(total)
    return wallaroo.build_application("judged", totals.to_sink(wallaroo.StdoutSinkConfig()))
"""
PER_EVENT = """
import wallaroo


class Total:
    {version}

    def __init__(self, count=0):
        self.count = count

{upgrade}

@wallaroo.key_extractor
def key_of(event):
    return event


@wallaroo.state_computation("total", state=Total)
def total(event, state):
    return event


def application_setup(args):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", "in.txt"))
    totals = lines.key_by(key_of).to(total)
    return wallaroo.build_application("judged", totals.to_sink(wallaroo.StdoutSinkConfig()))
"""
UPGRADE = """
@wallaroo.upgrade(Total, from_version=1)
def upgraded(fields):
    return Total(fields["count"])
"""
FIRST = [("count", "i8"), ("sum", "f8")]

Run = Callable[..., tuple[int, str, str]]
Write = Callable[[Any], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the application with another dtype, as its next version."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(fields: Any) -> Path:
        sys.modules.pop("plan_rows", None)
        file = tmp_path / "plan_rows.py"
        file.write_text(APPLICATION.format(fields=fields))
        return file

    yield write
    sys.modules.pop("plan_rows", None)


@pytest.fixture
def stored(
    begin: Callable[..., Any],  # noqa: F811  # fixture
    write: Write,
    tmp_path: Path,
) -> Path:
    """A checkpoint of the first dtype, with two rows."""
    plan = load_application(str(write(FIRST)), []).plan
    checkpoint = open_checkpoint(tmp_path / "checkpoint", is_durable=False)
    check_compatibility(checkpoint, plan, allow_incompatible=False)
    checkpoint.release()
    book = begin(steps=("total",))
    rows = {"a": {"count": 1, "sum": 2.0}, "b": {"count": 2, "sum": 136.5}}
    book.write({("total", key): row for key, row in rows.items()})
    book.close()
    return Path(book.root)


def test_the_same_fields_are_compatible(stored: Path, write: Write, wallaroo: Run) -> None:
    code, out, _ = wallaroo("plan", write(FIRST), "--checkpoint", stored, "--try-upgrade")

    assert code == 0
    assert out.splitlines() == [
        f"checkpoint {stored}, commit 0: compatible",
        "tried step 'total': 2 objects: 2 read as stored",
    ]


def test_each_field_that_changed_is_reported(stored: Path, write: Write, wallaroo: Run) -> None:
    app = write([("number", "i4"), ("sum", "f4")])
    code, out, _ = wallaroo("plan", app, "--checkpoint", stored, "--try-upgrade")

    assert code == 0
    assert out.splitlines() == [
        f"checkpoint {stored}, commit 0: compatible with changes",
        "  - State of step 'total', field 'count': gone; a stored value is removed at its key's "
        "next event.",
        "  - State of step 'total', field 'number': new (int32), begins with its initial value "
        "if a stored row lacks it.",
        "  - State of step 'total', field 'sum': was float64 and is float32; a stored value that "
        "float32 does not hold ends the run.",
        "tried step 'total': 2 objects: 2 filled in",
    ]


def test_a_stored_value_that_the_dtype_does_not_hold_is_found(
    stored: Path, write: Write, wallaroo: Run
) -> None:
    app = write([("count", "i8"), ("sum", "i8")])
    code, out, _ = wallaroo("plan", app, "--checkpoint", stored, "--try-upgrade")

    assert code == 1
    assert "tried step 'total': 2 objects: 1 read as stored, 1 failed\n" in out
    assert "  - key 'b': ValueError: field 'sum' is stored as 136.5, which <i8 cannot hold" in out


def test_integers_do_not_become_times(stored: Path, write: Write, wallaroo: Run) -> None:
    app = write([("count", "M8[ns]"), ("sum", "f8")])
    code, out, _ = wallaroo("plan", app, "--checkpoint", stored)

    assert code == 1
    assert (
        "Field 'count' of the state of step 'total' was int64 and is datetime64[ns]. Give the new "
        "field another name." in out
    )


def test_a_class_in_place_of_a_dtype_reads_rows_by_an_upgrade(
    stored: Path, write: Write, wallaroo: Run
) -> None:
    app = write(FIRST)
    app.write_text(PER_EVENT.format(version="", upgrade=""))
    code, out, _ = wallaroo("plan", app, "--checkpoint", stored, "--try-upgrade")
    assert code == 1
    assert "step 'total' is of a numpy dtype, now it is of class plan_rows.Total. To keep" in out
    assert "give Total state_version = 2, and write @wallaroo.upgrade(Total, from_ver" in out
    assert "tried" not in out

    app = write(FIRST)
    app.write_text(PER_EVENT.format(version="state_version = 2", upgrade=UPGRADE))
    code, out, _ = wallaroo("plan", app, "--checkpoint", stored, "--try-upgrade")
    assert (code, out.splitlines()[-1]) == (0, "tried step 'total': 2 objects: 2 upgraded")
