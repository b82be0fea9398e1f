"""``wallaroo new`` and ``wallaroo dev``: what they print is executed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import wallaroo
from tests.developing import developed
from wallaroo.cli.main import main
from wallaroo.sources import FilesSourceConfig

ROOT = Path(__file__).parents[3]
DEADLINE_S = 400.0


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def command(line: str) -> list[str]:
    words = shlex.split(line)
    start = {"python": [sys.executable], "wallaroo": [sys.executable, "-m", "wallaroo"]}
    return [*start[words[0]], *words[1:]]


def executed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(line), cwd=folder, env=environment(),
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> dict[str, str]:
    """The commands that ``wallaroo new clicks`` prints, by what they are for."""
    done = executed("wallaroo new clicks", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.partition(":") for line in done.stdout.splitlines()]
    return {what: line.strip() for what, _, line in lines if line}


def test_the_printed_test_passes_as_a_script_and_with_pytest(
    made: dict[str, str], tmp_path: Path
) -> None:
    assert executed(made["Test it"], tmp_path).stdout == "1 test passed\n"
    assert executed("python -m pytest -q -p no:cacheprovider clicks", tmp_path).returncode == 0


@pytest.mark.spark
def test_the_printed_run_prints_the_counts(made: dict[str, str], tmp_path: Path) -> None:
    done = executed(made["Run it"] + " --master local[1]", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ada has 3 clicks\n" in done.stdout


def test_dev_runs_in_one_process_until_the_input_ends(made: dict[str, str], tmp_path: Path) -> None:
    done = executed(made["While you change it"] + " --once", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"ada has 3 clicks", "bob has 2 clicks"} < set(done.stdout.splitlines())


def test_a_name_that_is_no_modules_name_or_taken_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    assert main(["new", "my-clicks"]) == 2
    assert "such as my_clicks." in capsys.readouterr().err
    for name, near in (("json", "my_json"), ("1x", "my_1x"), ("class", "my_class")):
        assert main(["new", name]) == 2
        assert f"such as {near}." in capsys.readouterr().err
    assert main(["new", "taken"]) == 1
    assert "taken already exists. Choose another name." in capsys.readouterr().err


@contextmanager
def developing(
    line: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], None]]]:
    """The process, and a function that waits until a text is printed."""
    printed: list[str] = []
    with subprocess.Popen(
        command(line), cwd=folder, env=environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        output = process.stdout
        assert output is not None
        threading.Thread(
            target=lambda: printed.extend(iter(lambda: output.read(1), "")), daemon=True
        ).start()

        def await_text(text: str) -> None:
            end_s = time.monotonic() + DEADLINE_S
            while text not in "".join(printed):
                assert time.monotonic() < end_s, "".join(printed)
                time.sleep(0.02)
            del printed[: "".join(printed).index(text) + len(text)]

        try:
            yield process, await_text
        finally:
            process.kill()


def test_dev_reloads_when_the_application_is_saved_and_survives_its_errors(
    made: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "clicks" / "clicks.py"
    good = file.read_text()
    with developing(made["While you change it"], tmp_path) as (_, await_text):
        await_text("waiting for a change")
        file.write_text(good.replace('return f"{click[0]} has', 'return f"{1 / 0} has'))
        await_text("ZeroDivisionError: division by zero")
        await_text("waiting for a change")
        file.write_text("if x\n")
        await_text("SyntaxError")
        await_text("waiting for a change")
        file.write_text(good.replace(" has ", " got "))
        await_text("ada got 3 clicks")


@pytest.mark.parametrize("name", ["helper", "inner.helper"])
def test_dev_reloads_when_a_module_that_could_not_be_imported_is_saved(
    made: dict[str, str], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "clicks"
    helper = (folder / name.replace(".", "/")).with_suffix(".py")
    helper.parent.mkdir(exist_ok=True)
    helper.write_text("x = \n")
    file = folder / "clicks.py"
    file.write_text(f"import {name}\n{file.read_text()}")
    with developing(made["While you change it"], tmp_path) as (_, await_text):
        await_text("SyntaxError")
        await_text("waiting for a change")
        helper.write_text("x = 1\n")
        await_text("ada has 3 clicks")


def test_breakpoints_work_in_dev(made: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "clicks" / "clicks.py"
    file.write_text(
        file.read_text().replace(
            "    clicks.count += 1\n", "    breakpoint()\n    clicks.count += 1\n"
        )
    )
    with developing(made["While you change it"] + " --once", tmp_path) as (process, await_text):
        assert process.stdin is not None
        await_text("(Pdb)")
        process.stdin.write("p click\n")
        process.stdin.flush()
        await_text("('ada', '/home')")


POLLED = """
import wallaroo
from wallaroo.sources import PollingSource

class Numbers(PollingSource):
    def poll(self, position):
        breakpoint()
        return None

@wallaroo.encoder
def encode(text):
    return text

def application_setup(args):
    numbers = wallaroo.source("numbers", Numbers("numbers"))
    return wallaroo.build_application("Numbers", numbers.to_sink(wallaroo.StdoutSinkConfig(encode)))
"""


def test_breakpoints_work_in_a_source_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "polled.py").write_text(POLLED)
    with developing("wallaroo dev polled.py --once", tmp_path) as (process, await_text):
        assert process.stdin is not None
        await_text("(Pdb)")
        process.stdin.write("p position, __name__\n")
        process.stdin.flush()
        await_text("(None, 'polled')")
        process.stdin.write("c\n")
        process.stdin.flush()
        assert process.wait(DEADLINE_S) == 0


TCP = """
import wallaroo

@wallaroo.decoder
def decode(payload):
    return payload.decode()

@wallaroo.encoder
def encode(text):
    return text.upper()

def application_setup(args):
    framing = args[0] if args else "length"
    config = wallaroo.TCPSourceConfig("lines", "127.0.0.1", 0, decode, framing=framing)
    sink = wallaroo.TCPSinkConfig("127.0.0.1", 9, encode)
    return wallaroo.build_application("Upper", wallaroo.source("Lines", config).to_sink(sink))
"""


@contextmanager
def listening(folder: Path, arguments: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """``wallaroo dev`` of the application above, and the port that its source listens on."""
    (folder / "upper.py").write_text(TCP)
    with subprocess.Popen(
        command(f"wallaroo dev upper.py {arguments}"), cwd=folder, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            found = re.search(r"listens on 127.0.0.1:(\d+)", process.stderr.readline())
            assert found
            yield process, int(found[1])
        finally:
            process.kill()


def test_dev_takes_frames_over_tcp_and_prints_what_the_sink_would_send(tmp_path: Path) -> None:
    with listening(tmp_path) as (process, port):
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"\0\0\0\5hello\0\0\0\5wo")
            assert process.stdout.readline() == "HELLO\n"
            client.sendall(b"rld")
            assert process.stdout.readline() == "WORLD\n"


def test_ctrl_c_ends_dev_in_order(tmp_path: Path) -> None:
    with listening(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, out, said) == (0, "", "")


def test_until_now_is_refused_where_every_source_waits_for_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "upper.py").write_text(TCP)
    for command_line in (["dev", "--once"], ["run"]):
        assert main([*command_line, "--until-now", str(tmp_path / "upper.py")]) == 2
        said = capsys.readouterr().err
        assert "every source is fed by clients that connect later" in said
        assert "Leave out --until-now" in said


def test_dev_takes_lines_over_tcp_and_the_last_one_needs_no_newline(tmp_path: Path) -> None:
    with listening(tmp_path, "lines") as (process, port):
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"hello\nwor")
            assert process.stdout.readline() == "HELLO\n"
            client.sendall(b"ld")
        assert process.stdout.readline() == "WORLD\n"


def test_dev_takes_what_came_before_a_broken_frame_and_says_what_is_wrong_with_it(
    tmp_path: Path,
) -> None:
    with listening(tmp_path) as (process, port):
        assert process.stdout is not None
        assert process.stderr is not None
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"\0\0\0\2hiGET / HTTP/1.1\r\n")
            assert process.stdout.readline() == "HI\n"
            message = process.stderr.readline()
        assert "source 'lines': closed 127.0.0.1:" in message
        assert "a frame of" in message
        assert "use framing='lines'" in message


class Unsaved:
    """An application's files, which are saved once the output is as long as expected."""

    def __init__(self, output: Callable[[], list[str]], lines: int):
        self._output = output
        self._lines = lines

    def has_changed(self) -> bool:
        return len(self._output()) >= self._lines


@pytest.mark.parametrize("is_watched", [False, True])
def test_dev_reads_files_in_place_to_their_end_or_for_as_long_as_more_may_come(
    is_watched: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "1.txt").write_text("a\nb\n")
    lines = FilesSourceConfig("lines", str(tmp_path), form="lines", watch=is_watched)
    application = wallaroo.build_application(
        "Lines", wallaroo.source("lines", lines).to_sink(wallaroo.StdoutSinkConfig(as_text))
    )
    seen: list[str] = []

    def output() -> list[str]:
        seen.extend(capsys.readouterr().out.splitlines())
        if len(seen) == 2 and is_watched and not (tmp_path / "2.txt").exists():
            (tmp_path / ".2").write_text("c\n")
            (tmp_path / ".2").rename(tmp_path / "2.txt")
        return seen

    expected = ["a", "b", "c"] if is_watched else ["a", "b"]
    developed(application, Unsaved(output, len(expected)))

    assert output() == expected


def test_dev_states_at_the_end_what_steps_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An application that prints nothing is no riddle."""
    (tmp_path / "1.txt").write_text("a\nb\n")
    lines = wallaroo.source("lines", FilesSourceConfig("lines", str(tmp_path), form="lines"))
    long = lines.filter(lambda line: len(line) > 1)
    application = wallaroo.build_application(
        "Lines", long.to_sink(wallaroo.StdoutSinkConfig(as_text))
    )
    developed(application, Unsaved(list, 1))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"wallaroo: left out in .*: 2 filtered\n", printed.err)


@wallaroo.encoder
def as_text(number: str) -> str:
    return f"{number}\n"
