"""What functions of the application print in workers: whole lines, with step and worker, in
order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wallaroo.processes import console
from wallaroo.processes.console import as_json, plain
from wallaroo.runtime.user_output.collector import Collector

ROOT = Path(__file__).parents[4]
DEADLINE_S = 400.0

# What a worker does: attach, then call steps.
WORKER = """
import logging, os, signal, sys, threading, warnings
import wallaroo
from wallaroo.runtime.user_output.settings import UserOutput
from wallaroo.runtime.user_output.worker import attach

@wallaroo.computation(name="Print")
def printing(event):
    print("event", event)
    helper(event)

def helper(event):
    sys.stderr.write(f"helped {event}\\n")

@wallaroo.computation(name="Log")
def logged(event):
    logging.getLogger("app").info("saw %s", event)
    logging.getLogger("app").debug("hidden %s", event)

@wallaroo.computation(name="Break")
def breaking(event):
    breakpoint()

output = UserOutput(sys.argv[1], sys.argv[2], is_json=sys.argv[3] == "json")
attach(output, "plan", lambda: (printing, logged, breaking))
attach(output, "plan", lambda: (printing, logged, breaking))
"""


def worker(
    address: str, script: str, level: str = "info", form: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WORKER + textwrap.dedent(script), address, level, form],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@contextmanager
def collecting(folder: Path) -> Iterator[tuple[Collector, list[str]]]:
    lines: list[str] = []
    console.take_over(lambda text: lines.extend(text.splitlines()))
    collector = Collector(folder)
    collector.start()
    try:
        yield collector, lines
    finally:
        collector.close()
        console.give_back()


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose name fits into a socket's address."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="wo-", dir="/tmp") as name:
        yield Path(name)


def test_prints_and_log_records_come_as_whole_lines_with_their_step(folder: Path) -> None:
    with collecting(folder) as (collector, lines):
        ended = worker(
            collector.address, "printing.function(1); logged.function(2); print('at the top')"
        )
    assert lines == [
        "[Print, worker 1] event 1",
        "[Print, worker 1] helped 1",
        "[Log, worker 1] INFO:app:saw 2",
        "[worker 1] at the top",
    ]
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_record_of_several_lines_with_an_error_is_one_entry_of_json(folder: Path) -> None:
    """The level, logger and traceback arrive beside the message, on this host as elsewhere."""
    script = """
    try:
        raise ValueError("no count")
    except ValueError:
        logging.getLogger("app").exception("two\\nlines")
    print("printed")
    """
    console.use_form(as_json)
    try:
        with collecting(folder) as (collector, lines):
            worker(collector.address, script)
        elsewhere = worker("", script, form="json").stderr.splitlines()
    finally:
        console.use_form(plain)
    for written, origin in ((lines, {"worker": 1}), (elsewhere, {})):
        record, printed = (json.loads(line) for line in written)
        exception = record.pop("exception").splitlines()
        assert (exception[0], exception[-1]) == (
            "Traceback (most recent call last):",
            "ValueError: no count",
        )
        for entry in (record, printed):
            del entry["time"]
        wanted = {"level": "error", "logger": "app", **origin, "message": "two\nlines"}
        assert record == wanted
        assert printed == {"level": "info", **origin, "message": "printed"}


def test_the_log_level_decides_what_is_logged(folder: Path) -> None:
    with collecting(folder) as (collector, lines):
        worker(collector.address, "logged.function(1)", "debug")
        worker(collector.address, "logged.function(1); logging.warning('x')", "off")
    assert lines == ["[Log, worker 1] INFO:app:saw 1", "[Log, worker 1] DEBUG:app:hidden 1"]


def test_logging_that_the_application_configures_stays_as_it_is(folder: Path) -> None:
    script = """
    logging.basicConfig(format="%(message)s!", level=logging.DEBUG)
    logged.function(1)
    """
    with collecting(folder) as (collector, lines):
        worker(collector.address, script, "off")
    assert lines == ["[Log, worker 1] saw 1!", "[Log, worker 1] hidden 1!"]


def test_half_a_line_waits_for_its_end_or_for_flush(folder: Path) -> None:
    script = """
    print("half", end=" ")
    print("whole")
    print("progress", end="", flush=True)
    """
    with collecting(folder) as (collector, lines):
        worker(collector.address, script)
    assert lines == ["[worker 1] half whole", "[worker 1] progress"]


def test_half_a_line_of_a_thread_is_no_part_of_a_line_of_another_one(folder: Path) -> None:
    """``print`` writes its values one by one, and another thread may run in between."""
    script = """
    def print_parts():
        print("first", end=" ")
        is_half.set()
        is_other.wait()
        print("second")
        print("unfinished", end="")
    is_half, is_other = threading.Event(), threading.Event()
    thread = threading.Thread(target=print_parts)
    thread.start()
    is_half.wait()
    print("other")
    sys.stdout.flush()
    is_other.set()
    thread.join()
    sys.stdout.flush()
    """
    with collecting(folder) as (collector, lines):
        worker(collector.address, script)
    assert lines == ["[worker 1] other", "[worker 1] first second", "[worker 1] unfinished"]


def test_lines_of_many_threads_and_workers_are_never_torn(folder: Path) -> None:
    script = """
    def much(name):
        for number in range(200):
            print(name, number, "x" * 3000)
    threads = [threading.Thread(target=much, args=(name,)) for name in "ab"]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    """
    with collecting(folder) as (collector, lines):
        workers = [threading.Thread(target=worker, args=(collector.address, script)) for _ in "12"]
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
    expected = {f"{name} {number} {'x' * 3000}" for name in "ab" for number in range(200)}
    for number in (1, 2):
        texts = [line.partition("] ")[2] for line in lines if line.startswith(f"[worker {number}]")]
        assert len(texts) == 400
        assert set(texts) == expected


def test_what_a_killed_worker_printed_is_there(folder: Path) -> None:
    with collecting(folder) as (collector, lines):
        ended = worker(
            collector.address, "print('last words'); os.kill(os.getpid(), signal.SIGKILL)"
        )
    assert ended.returncode == -9
    assert lines == ["[worker 1] last words"]


def test_without_a_driver_on_the_host_lines_go_to_the_workers_own_stderr(tmp_path: Path) -> None:
    for address in ("", str(tmp_path / "gone")):
        ended = worker(address, "printing.function(1)")
        assert ended.stderr == "[Print] event 1\n[Print] helped 1\n"
        assert ended.stdout == ""


@pytest.mark.parametrize(
    "call", ["breaking.function(1)", "import pdb; pdb.set_trace(); x = 1", "input('name? ')"]
)
def test_what_asks_a_person_in_a_worker_says_where_that_works(call: str) -> None:
    ended = worker("", call)
    assert "pdb and input() need a terminal" in ended.stderr
    assert "`wallaroo dev APP`" in ended.stderr


def test_a_folder_with_too_long_a_name_has_no_address(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 120)
    long.mkdir()
    with collecting(long) as (collector, _):
        assert collector.address == ""


def test_tasks_that_run_in_the_driver_itself_print_as_they_are() -> None:
    plain = """
import os, sys
from wallaroo.runtime.user_output.settings import UserOutput
from wallaroo.runtime.user_output.worker import attach
hook = sys.breakpointhook
attach(UserOutput("", "info", os.getpid()), "plan", lambda: ())
print("plain", sys.stdout is sys.__stdout__, sys.breakpointhook is hook)
"""
    done = subprocess.run(
        [sys.executable, "-c", plain],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    )  # fmt: skip
    assert done.stdout == "plain True True\n"


def test_what_c_code_and_subprocesses_write_has_the_number_of_its_worker(folder: Path) -> None:
    with collecting(folder) as (collector, lines):
        ended = worker(
            collector.address,
            """
            import subprocess
            printing.function(1)
            os.write(1, b"written past ")
            os.write(1, b"Python\\n")
            os.write(2, b"and to stderr\\n")
            subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
            sys.stdout.buffer.write(b"bytes\\n")
            sys.stdout.buffer.flush()
            """,
        )
    assert sorted(lines) == sorted(
        [
            "[Print, worker 1] event 1",
            "[Print, worker 1] helped 1",
            "[worker 1] written past Python",
            "[worker 1] and to stderr",
            "[worker 1] a child",
            "[worker 1] bytes",
        ]
    )
    assert (ended.stdout, ended.stderr) == ("", "")


def test_the_last_words_of_a_worker_that_crashes_arrive(folder: Path) -> None:
    with collecting(folder) as (collector, lines):
        ended = worker(
            collector.address, "os.write(2, b'cannot go on'); os.kill(os.getpid(), signal.SIGKILL)"
        )
    assert ended.returncode == -9
    assert lines == ["[worker 1] cannot go on"]


def test_a_worker_whose_driver_is_gone_writes_to_its_own_stderr(folder: Path) -> None:
    with collecting(folder) as (collector, lines):
        address = collector.address
    ended = worker(address, "printing.function(1); os.write(1, b'raw\\n')")
    assert lines == []
    assert "[Print] event 1\n" in ended.stderr
    assert ended.stdout == "raw\n"
