"""Which frames are the user's: by the name of their module, wherever its file is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.cli.application.loading import load_application
from wallaroo.errors import PipelineError, UserCodeError
from wallaroo.testing import run_step
from wallaroo.user_code.user_frames import (
    is_user_frame,
    user_files,
    user_frame,
    user_place,
)

APPLICATION = """
import wallaroo

@wallaroo.computation
def divide(number):
    return halve(number)

def halve(number):
    return number / 0

if __name__ == "__main__":
    from wallaroo import testing
    from wallaroo.user_code.user_frames import user_files, user_place
    print(next(user_files()))
    print(user_place())
    try:
        testing.run_step(divide, [1])
    except wallaroo.UserCodeError as error:
        print(error.place)
        print(error.trace)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project, in a folder that is called as this package is."""
    folder = tmp_path / "wallaroo" / "engine"
    folder.mkdir(parents=True)
    return folder


def test_a_project_in_a_folder_named_wallaroo_is_the_users(project: Path) -> None:
    script = project / "app.py"
    script.write_text(APPLICATION)

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)

    lines = done.stdout.split("\n")
    assert lines[0] == str(script)
    assert lines[1] == f"{script}:15"
    assert lines[2] == f"{script}:9"
    assert f'"{script}", line 6, in divide' in done.stdout
    assert f'"{script}", line 9, in halve' in done.stdout
    assert "computation.py" not in done.stdout


def test_an_error_of_an_import_shows_lines_of_a_project_in_a_folder_named_wallaroo(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = project / "breaks_at_import.py"
    script.write_text("def fail():\n    raise OSError('no disk')\n\nfail()\n")

    with pytest.raises(PipelineError) as caught:
        load_application(str(script), [])

    assert f"{script}:4 in <module>: fail()" in str(caught.value)
    assert f"{script}:2 in fail: raise OSError('no disk')" in str(caught.value)
    assert "importlib" not in str(caught.value)


def test_this_test_is_the_users() -> None:
    frame = user_frame()

    assert frame is not None
    assert is_user_frame(frame)
    assert frame.f_code.co_name == "test_this_test_is_the_users"
    assert next(user_files()) == __file__
    assert user_place().startswith(f"{__file__}:")


@wallaroo.computation
def reads_a_missing_key(event: dict[str, Any]) -> Any:
    return event["missing"]


def test_a_traceback_shows_no_frames_of_the_engine() -> None:
    with pytest.raises(UserCodeError) as caught:
        run_step(reads_a_missing_key, [{}])

    assert caught.value.trace.count("File ") == 1
    assert "in reads_a_missing_key" in caught.value.trace
