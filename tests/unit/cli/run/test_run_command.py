"""``wallaroo run``: its options, its exit codes, its signals, its terminal."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.cli.run.fakes import STATUS, FakeHandle
from tests.unit.cli.run.stub_run import LINES, LONG
from wallaroo.cli.run import command
from wallaroo.cli.run.arguments import run_options
from wallaroo.cli.run.command import StopSignals
from wallaroo.cli.run.live_view import LiveView
from wallaroo.cli.run.views import LineView, QuietView, choose_view
from wallaroo.errors import CheckpointError, PipelineError
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.processes.console import as_json

ROOT = Path(__file__).parents[4]
DEADLINE_S = 400.0


def parsed(*words: str) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    command.add_parser(parser.add_subparsers())
    return command.parse(parser.parse_args(["run", *words]))


# -- options
# --------------------------------------------------------------------------------------------------


def test_the_applications_options_reach_it_unchanged_and_in_order() -> None:
    application = [
        "--in",
        "Split and Count@127.0.0.1:7010",
        "-o",
        "127.0.0.1:7002",
        "--step=-5",
        "word",
        "--i",
    ]
    options, rest = parsed("words.py", *application)
    assert (options.app, rest) == ("words.py", application)


def test_own_options_may_stand_before_and_among_the_applications() -> None:
    options, rest = parsed(
        "--tasks",
        "3",
        "words.py",
        "--in",
        "a@h:1",
        "--batch-time",
        "0.5",
        "-o",
        "h:2",
        "--checkpoint",
        "/c",
    )
    assert (options.tasks, options.batch_time, options.checkpoint) == (3, 0.5, Path("/c"))
    assert rest == ["--in", "a@h:1", "-o", "h:2"]


def test_behind_two_dashes_everything_is_the_applications() -> None:
    options, rest = parsed("words.py", "--tasks", "3", "--", "--tasks", "4", "--", "--help")
    assert (options.tasks, rest) == (3, ["--tasks", "4", "--", "--help"])


def test_a_shortened_own_option_is_the_applications() -> None:
    options, rest = parsed("words.py", "--check", "--task", "7")
    assert (options.checkpoint, options.tasks, rest) == (None, None, ["--check", "--task", "7"])


def test_an_option_before_the_application_is_not_reset_by_what_follows() -> None:
    options, _ = parsed("--quiet", "--master", "local[1]", "words.py", "--no-live")
    assert (options.quiet, options.no_live, options.master) == (True, True, "local[1]")


def test_the_defaults_suit_one_machine() -> None:
    options, rest = parsed("words.py")
    assert (options.master, options.checkpoint, options.tasks, options.batch_time) == (
        "local[*]",
        None,
        None,
        1.0,
    )
    assert (options.key_groups, options.log_level, options.fresh, options.summary, rest) == (
        128,
        "error",
        False,
        None,
        [],
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--tasks", "0"], "0 is too small: at least 1"),
        (["--key-groups", "-1"], "-1 is too small"),
        (["--batch-time", "0"], "give seconds above 0"),
        (["--batch-time", "inf"], "give seconds above 0"),
        (["--log-level", "loud"], "invalid choice"),
        (["--latency", "0"], "give milliseconds above 0"),
        (["--latency", "quick"], "give milliseconds above 0"),
        (["--latency", "nan"], "give milliseconds above 0"),
        (["--host", "fast"], "invalid choice"),
    ],
)
def test_an_impossible_value_is_a_wrong_command_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        parsed("words.py", *words)
    assert exit_.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "is_resident", "latency_s"),
    [
        ([], True, 0.05),
        (["--latency", "200"], True, 0.2),
        (["--latency", "20ms"], True, 0.02),
        (["--host", "micro-batch"], False, 0.0),
        (["--host", "micro-batch", "--latency", "5000"], False, 5.0),
        (["--latency", "low"], True, 0.0),
        (["--latency", "normal"], False, 0.0),
    ],
)
def test_latency_and_host_choose_how_batches_run(
    words: list[str], is_resident: bool, latency_s: float
) -> None:
    """A number is a target in milliseconds; the former words are what they were."""
    options = run_options(parsed("words.py", *words)[0]).on(is_shared=False)
    assert (options.is_resident, options.latency_s) == (is_resident, latency_s)


def test_a_former_word_beside_a_host_is_refused() -> None:
    """The word names a host already; the error says what to give instead."""
    with pytest.raises(PipelineError, match="Give --latency in milliseconds"):
        run_options(parsed("words.py", "--latency", "low", "--host", "resident")[0])


# -- starting from nothing
# --------------------------------------------------------------------------------------------------


def test_fresh_over_a_checkpoint_needs_a_yes_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "commits").mkdir()
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115  # closed with the process
    options, _ = parsed("words.py", "--fresh", "--checkpoint", str(tmp_path))
    with pytest.raises(CheckpointError, match="Add --yes to confirm"):
        command.confirm_fresh(options)
    options.yes = True
    command.confirm_fresh(options)


def test_fresh_over_an_empty_or_absent_checkpoint_asks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        command.confirm_fresh(parsed("words.py", "--fresh", "--checkpoint", str(directory))[0])
    assert capsys.readouterr().err == ""


# -- a whole run
# --------------------------------------------------------------------------------------------------


def stub(behaviour: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.unit.cli.run.stub_run", behaviour, "words.py", *words]


def environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TERM": "xterm"}


def finished(behaviour: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        stub(behaviour, *words),
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@contextmanager
def running(behaviour: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        stub(behaviour, *words), cwd=ROOT, env=environment(), **streams
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, word: bytes) -> bytes:
    """Everything up to a read that has ``word`` in it; fails at the deadline."""
    seen, end_s = b"", time.monotonic() + DEADLINE_S
    while word not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end_s - time.monotonic()))
        assert ready, f"no {word!r} in {seen!r}"
        some = os.read(descriptor, 65536)
        assert some, f"ended without {word!r}: {seen!r}"
        seen += some
    return seen


def test_a_run_whose_sources_end_exits_with_0_and_a_summary() -> None:
    ended = finished("ends")
    lines = ended.stderr.splitlines()
    assert ended.returncode == 0
    beginning = (
        "starting words.py on local[*], temporary checkpoint (keep one with --checkpoint DIR)"
    )
    assert untimed(lines[0]) == beginning
    assert untimed(lines[1]).startswith("Market Spread running")
    assert any(line.startswith("Market Spread: stopped after") for line in lines)
    assert ended.stdout == ""


def untimed(line: str) -> str:
    """A line of the log without its date and time, which it has to have."""
    found = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (.*)", line)
    assert found, line
    return found[1]


def test_every_line_of_a_piped_log_has_its_time() -> None:
    """Also those of Python's stderr, of loggers of the application, and each of several."""
    ended = finished("logs", "--no-live")
    log = ended.stderr.partition("Market Spread: stopped")[0]
    lines = [untimed(line) for line in log.splitlines()]
    for wanted in (
        "printed by the application",
        "WARNING:words:two",
        "lines",
        "worker process 1 was killed",
        "[Count, worker 1] ERROR:app:counted",
        "spark WARN TaskSetManager: Lost task",
    ):
        assert wanted in lines


def test_a_log_of_json_is_json_in_every_line() -> None:
    """The beginning, states, lines of all kinds, and the summary."""
    ended = finished("logs", "--log", "json")
    entries = [json.loads(line) for line in ended.stderr.splitlines()]
    assert all({"time", "level", "message"} <= set(entry) for entry in entries)
    assert all(re.fullmatch(r"[\d-]{10}T[\d:.]{12}Z", entry["time"]) for entry in entries)
    assert [entry["kind"] for entry in entries if "kind" in entry] == [
        "start",
        "status",
        "summary",
    ]
    status, done = (entry["status"] for entry in entries if "status" in entry)
    assert (status["state"], status["events_in"]) == ("running", done["events_in"])

    def facts_of(message: str) -> dict[str, object]:
        (entry,) = (entry for entry in entries if entry["message"] == message)
        return {name: entry[name] for name in entry if name not in ("time", "message")}

    assert facts_of("printed by the application") == {"level": "info"}
    assert facts_of("two\nlines") == {"level": "warning", "logger": "words"}
    assert facts_of("worker process 1 was killed") == {"level": "warning", "logger": "wallaroo.run"}
    assert facts_of("counted") == {
        "level": "error",
        "logger": "app",
        "step": "Count",
        "worker": 1,
        "exception": "ValueError: no count",
    }
    assert facts_of("spark WARN TaskSetManager: Lost task") == {
        "level": "warning",
        "logger": "spark.TaskSetManager",
    }


def test_an_error_of_a_json_log_is_json() -> None:
    ended = finished("user-error", "--log", "json")
    last = json.loads(ended.stderr.splitlines()[-1])
    assert ended.returncode == 3
    assert (last["level"], last["kind"]) == ("error", "error")
    assert last["message"].startswith("wallaroo: error: step 'Count words' failed at words.py:12")


def test_a_json_log_has_no_table_on_a_terminal() -> None:
    options, _ = parsed("words.py", "--log", "json")
    assert command._form(options) is as_json


def test_quiet_prints_nothing() -> None:
    ended = finished("ends", "--quiet")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_an_error_in_a_users_function_exits_with_3_and_is_the_last_word_once() -> None:
    ended = finished("user-error")
    assert ended.returncode == 3
    assert ended.stderr.endswith(
        "wallaroo: error: step 'Count words' failed at words.py:12: ValueError: not a word\n"
        "  event: b'\\x00'\n"
        "  The batch was not committed. Correct the function and run again.\n"
    )
    assert ended.stderr.count("not a word") == 1
    assert "Traceback" not in ended.stderr


def test_any_other_error_exits_with_1() -> None:
    ended = finished("peer-error", "--quiet")
    assert ended.returncode == 1
    assert (
        ended.stderr
        == "wallaroo: error: port 7010 is taken. Stop what listens there, or choose another.\n"
    )


def test_the_summary_file_holds_the_last_status_of_a_failed_run_too(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    finished("user-error", "--summary", str(file))
    written = json.loads(file.read_text())
    assert (written["state"], written["batches"], written["latency"][0]["p99_ms"]) == (
        "failed",
        61,
        1120.0,
    )


def test_the_runs_own_error_comes_before_one_about_the_summary_file(tmp_path: Path) -> None:
    ended = finished("user-error", "--quiet", "--summary", str(tmp_path))
    assert ended.returncode == 3
    assert "step 'Count words' failed" in ended.stderr
    assert "cannot be written" not in ended.stderr


def test_a_summary_file_in_no_directory_is_reported_before_anything_starts(tmp_path: Path) -> None:
    ended = finished("ends", "--summary", str(tmp_path / "absent" / "summary.json"))
    assert ended.returncode == 1
    assert "there is no directory" in ended.stderr
    assert "starting" not in ended.stderr


def test_a_summary_file_that_cannot_be_written_is_reported_after_the_run(tmp_path: Path) -> None:
    ended = finished("ends", "--summary", str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.endswith("cannot be written: Is a directory. Name another file.\n")


def test_a_view_that_fails_does_not_leave_the_run_behind() -> None:
    class Broken(QuietView):
        def show(self, status: RunStatus) -> None:
            raise OSError("the terminal is gone")

    handle = FakeHandle()
    with (
        StopSignals(lambda: None) as signals,
        pytest.raises(OSError, match="terminal is gone"),
    ):
        command.watch(handle, Broken(), signals)
    assert handle.stops == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("is_live_allowed", "term", "view"),
    [(True, "xterm", LiveView), (False, "xterm", LineView), (True, "dumb", LineView)],
)
def test_a_terminal_gets_a_table_unless_it_cannot_or_must_not(
    is_live_allowed: bool, term: str, view: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", term)
    assert type(choose_view(False, is_live_allowed)) is view


# -- signals
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_at_the_batch_boundary_and_exits_with_0(
    number: signal.Signals,
) -> None:
    with running("stops") as process:
        assert process.stderr is not None
        read_until(process.stderr.fileno(), b"Market Spread running")
        process.send_signal(number)
        said = read_until(process.stderr.fileno(), b"receipt to output")
        assert process.wait(DEADLINE_S) == 0
    assert said.count(b"stopping at the batch boundary...") == 1
    assert b"Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once_with_130(number: signal.Signals) -> None:
    with running("deaf") as process:
        assert process.stderr is not None
        read_until(process.stderr.fileno(), b"Market Spread running")
        process.send_signal(number)
        read_until(process.stderr.fileno(), b"stopping at the batch boundary...")
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 130
        assert b"Traceback" not in process.stderr.read()


def test_the_log_is_as_it_was_when_a_run_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """A program that runs a command inside its own process keeps its logging."""
    log = logging.getLogger("wallaroo")
    before = (list(log.handlers), log.level, log.propagate)
    options, _ = parsed("--quiet", "words.py")
    command.execute(lambda: FakeHandle(ends_after=1), options)
    assert (list(log.handlers), log.level, log.propagate) == before
    log.warning("of the program")
    assert "of the program" in caplog.text


def test_a_run_that_takes_several_looks_to_stop_is_asked_once() -> None:
    handle = FakeHandle(ends_after=4)
    handle.is_deaf = True
    with StopSignals(lambda: None) as signals:
        signals.count = 1
        assert command.watch(handle, QuietView(), signals, poll_s=0.001).state == "stopped"
    assert handle.stops == 1


def test_a_signal_while_spark_starts_is_answered_at_once_and_stops_the_run() -> None:
    with running("slow-start") as process:
        assert process.stderr is not None
        read_until(process.stderr.fileno(), b"starting: starting Spark")
        process.send_signal(signal.SIGINT)
        read_until(
            process.stderr.fileno(), b"stopping while starting Spark, before the first batch"
        )
        assert process.wait(DEADLINE_S) == 0


def test_signals_work_where_something_else_took_them_over() -> None:
    with running("takes-signals") as process:
        assert process.stderr is not None
        read_until(process.stderr.fileno(), b"Market Spread running")
        process.send_signal(signal.SIGINT)
        read_until(process.stderr.fileno(), b"stopping at the batch boundary")
        assert process.wait(DEADLINE_S) == 0


def test_each_phase_of_the_start_is_reported_with_its_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    said: list[str] = []
    phases = command.Phases(said.append)
    for at_s, state, phase in (
        (0.0, "starting", "opening sources"),
        (0.1, "starting", "starting Spark"),
        (3.2, "starting", "starting workers"),
        (5.2, "running", ""),
    ):
        now_s[0] = at_s
        phases.look(replace(STATUS, state=state, doing=phase))
    assert said == ["starting Spark: 3.1 s", "starting workers: 2.0 s"]
    assert not phases.is_starting


# -- the terminal
# --------------------------------------------------------------------------------------------------


@contextmanager
def on_a_terminal(
    behaviour: str, *words: str, with_stdout: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    stdout = theirs if with_stdout else subprocess.PIPE
    streams = {"stdin": theirs, "stdout": stdout, "stderr": theirs}
    with subprocess.Popen(
        stub(behaviour, *words), cwd=ROOT, env=environment(), **streams
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


CURSOR_OFF, CURSOR_ON = b"\x1b[?25l", b"\x1b[?25h"


def test_on_a_terminal_the_table_is_live_and_the_cursor_comes_back_at_the_end() -> None:
    with on_a_terminal("stops") as (process, terminal):
        screen = read_until(terminal, b"99.9")
        process.send_signal(signal.SIGINT)
        screen += read_until(terminal, b"receipt to output")
        assert process.wait(DEADLINE_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert screen.index(CURSOR_OFF) < screen.rindex(CURSOR_ON) < screen.index(b"Market Spread: ")


def test_the_cursor_comes_back_after_the_second_signal_too() -> None:
    with on_a_terminal("deaf") as (process, terminal):
        read_until(terminal, CURSOR_OFF)
        process.send_signal(signal.SIGINT)
        read_until(terminal, b"stopping at the batch boundary...")
        process.send_signal(signal.SIGINT)
        read_until(terminal, CURSOR_ON)
        assert process.wait(DEADLINE_S) == 130


def test_no_live_prints_lines_on_a_terminal_too() -> None:
    with on_a_terminal("ends", "--no-live") as (process, terminal):
        screen = read_until(terminal, b"receipt to output")
        assert process.wait(DEADLINE_S) == 0
    assert CURSOR_OFF not in screen
    assert b"Market Spread running" in screen


def test_fresh_on_a_terminal_asks_and_takes_no_for_an_answer(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    with on_a_terminal("ends", "--fresh", "--checkpoint", str(tmp_path)) as (process, terminal):
        read_until(terminal, b"[y/N]")
        os.write(terminal, b"n\n")
        read_until(terminal, b"is unchanged; nothing was run")
        assert process.wait(DEADLINE_S) == 1


def seen_on_screen(written: str) -> list[str]:
    """The lines of a terminal of any size to which this was written."""
    lines, row, column = [""], 0, 0
    for text, count, code in re.findall(
        r"([^\x1b\r\n]+|\r|\n)|\x1b\[([0-9;?]*)([A-Za-z])", written
    ):
        if text == "\r":
            column = 0
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + text + line[column + len(text) :]
            column += len(text)
        elif code == "A":
            row -= int(count or 1)
        elif code == "K":
            lines[row] = ""
    return lines


def test_everything_printed_scrolls_above_the_table_whole_and_in_order() -> None:
    with on_a_terminal("prints", with_stdout=True) as (process, terminal):
        screen = read_until(terminal, b"receipt to output").decode()
        assert process.wait(DEADLINE_S) == 0
    plain = seen_on_screen(screen)
    for kind in ("output", "log", "WARNING:root:warning"):
        assert [line for line in plain if line.startswith(f"{kind} ")] == [
            f"{kind} {number}" for number in range(LINES)
        ]
    # longer than the terminal is wide, and still one line where it is copied
    assert [line for line in plain if line.startswith("step ")] == [
        f"step {number} {LONG}" for number in range(LINES)
    ]
    # one table, below everything
    heads = [number for number, line in enumerate(plain) if line.startswith(" Market Spread ")]
    assert len(heads) == 1
    assert heads[0] > plain.index(f"step {LINES - 1} {LONG}")


def test_outputs_into_a_pipe_stay_as_they_are_beside_the_table() -> None:
    with on_a_terminal("prints") as (process, terminal):
        screen = read_until(terminal, b"receipt to output")
        assert process.wait(DEADLINE_S) == 0
        assert process.stdout is not None
        outputs = process.stdout.read().decode().splitlines()
    assert outputs == [f"output {number}" for number in range(LINES)]
    assert b"output 3" not in screen


def test_a_standby_begins_no_checkpoint_from_a_savepoint(tmp_path: Path) -> None:
    options = ["app.py", "--from-savepoint", "saved", "--standby", "--checkpoint"]
    with pytest.raises(PipelineError, match="A standby begins no checkpoint"):
        run_options(parsed(*options, str(tmp_path / "new"))[0])
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "format.json").write_text("{}")
    assert run_options(parsed(*options, str(tmp_path / "begun"))[0]).standby_after_s == 3.0
