"""The error boundary of the command line, and its exit codes."""

from __future__ import annotations

import argparse
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wallaroo.cli import main as command
from wallaroo.errors import InternalError, PeerError, PipelineError, Problem, UserCodeError


@pytest.fixture(autouse=True)
def without_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WALLAROO_TRACE", raising=False)


def fail(error: BaseException) -> int:
    """The exit code of a command line whose command raises this."""

    def handler(options: object) -> int:
        raise error

    return command.run_command(argparse.Namespace(handler=handler), ["fail"])


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_command_can_be_asked_for_without_the_others(name: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        command.main([name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: wallaroo {name}")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (PeerError("the disk is full"), 1, "wallaroo: error: the disk is full\n"),
        (
            PipelineError(Problem("step 'a'", "f.py:1", "It is wrong.", "Fix it.")),
            2,
            "step 'a' (f.py:1): It is wrong. Fix it.",
        ),
        (
            UserCodeError("a", "f.py:2", "b'x'", "ValueError: no"),
            3,
            "step 'a' failed at f.py:2: ValueError: no",
        ),
        (
            InternalError("two at once", "Traceback of a worker"),
            70,
            "This is a mistake in wallaroo, not in your application (two at once).",
        ),
        (KeyboardInterrupt(), 130, "wallaroo: interrupted\n"),
    ],
)
def test_an_error_is_one_text_and_an_exit_code(
    capsys: Any, error: BaseException, code: int, text: str
) -> None:
    assert fail(error) == code
    printed = capsys.readouterr().err
    assert text in printed
    assert "Traceback" not in printed


def test_an_unexpected_error_asks_for_a_report_and_keeps_the_traceback_in_a_file(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert fail(KeyError("lost")) == 70
    printed = capsys.readouterr().err
    found = re.fullmatch(
        r"wallaroo: error: This is a mistake in wallaroo.* \(KeyError: 'lost'\)\. Please .* "
        r"attach (\S+)\n",
        printed,
    )
    assert found
    assert "Traceback" in Path(found.group(1)).read_text()


def test_the_traceback_of_a_worker_is_in_the_report(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    error = pickle.loads(pickle.dumps(InternalError("it broke", "the worker's own words")))
    assert fail(error) == 70
    attached = re.search(r"attach (\S+)\n", capsys.readouterr().err)
    assert attached
    assert "the worker's own words" in Path(attached.group(1)).read_text()


def test_the_traceback_is_printed_when_asked_for(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALLAROO_TRACE", "1")
    fail(PeerError("gone"))
    assert "Traceback" in capsys.readouterr().err


def test_every_command_explains_itself(capsys: Any) -> None:
    for name in ("run", "send", "receive", "graph", "explain", "status", "doctor"):
        with pytest.raises(SystemExit) as caught:
            command.main([name, "--help"])
        assert caught.value.code == 0
        assert f"usage: wallaroo {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["run", "--batch-time", "abc", "x.py"], "argument --batch-time: 'abc' is not a number. "),
        (["run", "x.py", "--batch-time", "abc"], "argument --batch-time: 'abc' is not a number. "),
        (["run", "--tasks", "0", "x.py"], "argument --tasks: 0 is too small: at least 1. "),
        (["rnu"], "argument COMMAND: invalid choice: 'rnu'. Did you mean run? "),
        (["state", "lst"], "argument VERB: invalid choice: 'lst'. Did you mean list? "),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(
    capsys: Any, line: list[str], text: str
) -> None:
    """No usage of all options precedes what is wrong."""
    with pytest.raises(SystemExit) as caught:
        command.main(line)
    assert caught.value.code == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert printed.startswith(f"wallaroo: error: {text}`wallaroo ")
    assert printed.endswith(" --help` shows the options.")


def test_an_option_of_another_command_is_answered_with_the_help_of_this_one(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        command.main(["state", "rename", "--checkpoint", "dir", "old", "new"])
    assert "--checkpoint. `wallaroo state rename --help` shows" in capsys.readouterr().err


def test_a_word_that_resembles_no_command_is_answered_with_the_commands(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        command.main(["zzz"])
    assert "invalid choice: 'zzz' (choose from 'new', " in capsys.readouterr().err


def test_ctrl_c_while_modules_are_imported_prints_no_traceback() -> None:
    code = "import wallaroo.cli\nraise KeyboardInterrupt"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=False
    )
    assert ended.returncode in (130, -signal.SIGINT)
    assert ended.stderr == "wallaroo: interrupted\n"
