"""Commands in a pipe: what follows something prints as it comes; a reader that leaves ends it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wallaroo.cli.receive.receiver import listen_address
from wallaroo.processes.environment import python_environment

TOP = """
import sys
from tests.unit.cli.test_top import Application
from wallaroo.cli import main, top
top.only_one = lambda command: Application(looks=1 << 30)
main.entry()
"""
BUFFERED = {**python_environment(), "PYTHONUNBUFFERED": ""}
WALLAROO = "from wallaroo.cli.main import entry; entry()"
APPLICATION = """
import wallaroo

def application_setup(args):
    lines = wallaroo.source("lines", wallaroo.FileSourceConfig("lines", args[0]))
    return wallaroo.build_application("a", lines.to_sink(wallaroo.StdoutSinkConfig()))
"""


@contextmanager
def piped(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose output goes into a pipe, through Python's buffer."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=BUFFERED,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_and_leave(process: subprocess.Popen[bytes], lines: int) -> list[str]:
    """Do as `head`."""
    assert process.stdout is not None
    found = [process.stdout.readline().decode() for _ in range(lines)]
    process.stdout.close()
    return found


def ending(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stderr is not None
    printed = process.stderr.read().decode()
    return process.wait(), printed


def test_top_prints_each_refresh_as_it_comes() -> None:
    with piped(TOP, "top", "--every", "0.05") as process:
        lines = read_and_leave(process, 100)
        assert sum("Market Spread" in line for line in lines) > 2
        assert "\n" in lines  # between two refreshes
        assert "\x1b" not in "".join(lines)
        assert ending(process) == (1, "")


def into(output: int, *arguments: str) -> tuple[int, str]:
    """Run a command with this output; return its exit code, and what it says."""
    done = subprocess.run(
        [sys.executable, "-c", WALLAROO, *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        env=BUFFERED,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture
def left() -> Iterator[int]:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.parametrize("command", ["--version", "--help", "completion bash"])
def test_a_reader_that_has_left_is_no_error(left: int, command: str) -> None:
    assert into(left, *command.split()) == (1, "")


def test_a_receiver_ends_with_its_reader() -> None:
    with piped(WALLAROO, "receive", "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stderr.readline().decode().split()[-1]
        process.stdout.close()
        with socket.create_connection(listen_address(address)) as sender:
            sender.sendall(b"one")
            assert ending(process) == (1, "")


def test_a_run_that_prints_names_the_sink_whose_reader_has_left(left: int, tmp_path: Path) -> None:
    application = tmp_path / "printing.py"
    application.write_text(APPLICATION)
    (tmp_path / "lines").write_text("one\ntwo\n")
    code, said = into(left, "dev", "--once", str(application), str(tmp_path / "lines"))
    assert code == 1
    assert "wallaroo: error: Sink 'stdout' cannot print: Broken pipe. Let standard output" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--version", "doctor", "completion bash"])
def test_a_full_disk_is_named(
    monkeypatch: pytest.MonkeyPatch, command: str, unbuffered: str
) -> None:
    monkeypatch.setitem(BUFFERED, "PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("wb") as full:
        said = "wallaroo: error: standard output cannot be written: No space left on device\n"
        assert into(full.fileno(), *command.split()) == (1, said)


def without_output(*arguments: str) -> tuple[int, str]:
    """Run a command whose standard output is closed; return its exit code, and what it says."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-c", WALLAROO, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=BUFFERED,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_command_that_prints_says_that_its_output_is_closed() -> None:
    said = "wallaroo: error: standard output cannot be written: Bad file descriptor\n"
    assert without_output("--version") == (1, said)
    assert without_output("doctor") == (1, said)
    assert without_output("completion", "bash") == (1, said)


def test_a_command_that_prints_nothing_needs_no_output() -> None:
    code, said = without_output("nosuch")
    assert code == 2
    assert "Bad file descriptor" not in said


def test_what_the_encoding_of_the_output_lacks_is_written_in_escapes(tmp_path: Path) -> None:
    application = tmp_path / "printing.py"
    application.write_text(APPLICATION)
    (tmp_path / "lines").write_text("Größe €\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WALLAROO, "dev", "--once", application, tmp_path / "lines"],
        capture_output=True,
        env={**BUFFERED, "PYTHONIOENCODING": "latin-1"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"Gr\xf6\xdfe \\u20ac\n"), done.stderr
