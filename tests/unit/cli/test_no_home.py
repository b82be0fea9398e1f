"""Commands without a home directory, or a folder for temporary files, as in containers."""

from __future__ import annotations

import os
import pwd
import tempfile
from pathlib import Path

import pytest

from wallaroo.cli.main import build_parser, main


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a user whom no file names, without the variables that name folders."""

    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "WALLAROO_CACHE"):
        monkeypatch.delenv(variable, raising=False)


def test_the_help_needs_no_home() -> None:
    assert "cluster" in build_parser().format_help()


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        ("cluster status", "XDG_STATE_HOME"),
        ("state list --checkpoint s3://bucket/x", "XDG_CACHE_HOME"),
    ],
)
def test_what_needs_a_home_names_the_variable(
    command: str, variable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 1
    who = f"the user with the number {os.getuid()} has no home directory."
    assert f"error: {who} Set HOME, or {variable} to a folder." in capsys.readouterr().err


def test_a_named_folder_needs_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "status", "--dir", str(tmp_path)]) == 1
    assert f"There is no cluster in {tmp_path}." in capsys.readouterr().err


def test_a_home_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert main(["doctor", "--faster-start"]) == 1
    said = capsys.readouterr().err
    assert f"cannot create the folder of the archive, {tmp_path}/file/.cache/" in said
    assert "Not a directory. Set XDG_CACHE_HOME to a folder of yours." in said


def test_a_machine_without_a_folder_for_temporary_files_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "none")])
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert main(["status"]) == 1
    said = "there is no folder for temporary files that this user can write. Set TMPDIR to one."
    assert said in capsys.readouterr().err
