"""The commands of the pages run, in their order, in a folder like the reader's.

`wallaroo run` is run without Spark; commands that cannot run here are listed with the reason and,
if there is one, the test that runs them elsewhere.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.docs.test_code import RUN, blocks
from tests.docs.test_runbook import TOTALS
from wallaroo.spark.local_cluster.hosts import free_ports

ROOT = Path(__file__).parents[2]
WAIT_S = 400.0
SOON_S = 400.0
Eventually = Callable[..., None]

# A command, the reason why it does not run here, and what does it elsewhere.
NOT_RUN = [
    (r"make |cd |\. |git ", "sets up a clone, or tests all of it: make test does", ".ci/run"),
    (r"python -m tests\.verification", "takes minutes", "tests/faults/test_verify_short.py"),
    (r"wallaroo verify", "takes minutes", "tests/faults/test_verify_short.py"),
    (r"wallaroo cluster|.*spark://", "starts Spark", "tests/e2e/test_cluster.py"),
    (r"psql |python (make_prices|show_bills)|pip install .*deltalake|wallaroo run lakehouse|"
     r"wallaroo sql .*state\.bill ", "a PostgreSQL", "tests/e2e/test_lakehouse.py"),
    (r"wallaroo run order_counts", "a broker", "tests/connectors/kafka/test_chain.py"),
    (r"wallaroo (send|receive) .*kafka://", "a broker", "tests/unit/cli/test_kafka_commands.py"),
    (r"printf .*kafka|kafka-console|.*kafka_count", "a broker", "tests/e2e/test_kafka.py"),
    (r"wallaroo run .*/mnt/", "the reader's own share", "tests/faults/test_take_over.py"),
    (r"wallaroo replica|.*--durability replicated", "a second host", "tests/replication"),
    (r"wallaroo ingress|.*--ingress-listen", "a second host", "tests/ingresses"),
    (r"docker|kubectl", "no container runtime, no cluster", "tests/unit/deploy"),
    (r"wallaroo sink skip", "needs damaged output", "tests/unit/cli/test_sink_command.py"),
    (r"wallaroo plan (orders|accounts).*|.*rename accounts", "the reader's own checkpoint",
     "tests/unit/cli/test_plan_of_state.py"),
    (r"wallaroo state load", "the reader's own table and application",
     "tests/unit/checkpoints/maintenance/test_loading.py"),
    (r"wallaroo state get u26", "the reader's own checkpoint", "tests/unit/state"),
    (r"wallaroo send .*(access\.log|--secret-file)", "needs another source",
     "tests/unit/cli/send"),
    (r"wallaroo profile word_count", "starts Spark", "tests/unit/cli/profile"),
    (r"wallaroo profile.*--flame", "looks into processes of others", "tests/unit/cli/profile"),
    (r"wallaroo top", "a live table until Ctrl-C", "tests/unit/cli/test_top.py"),
    (r"wallaroo doctor", "its verdict is this machine's", "tests/unit/cli/doctor"),
    (r"eval ", "changes the reader's shell", "tests/unit/cli/test_completion.py"),
    # applications of other pages, which tests/docs/test_code.py runs
    (r"wallaroo run prices|wallaroo dev .*totals", "code of pages", "tests/docs/test_code.py"),
]  # fmt: skip
WORDS = (
    "wallaroo run word_count.py --checkpoint counts --in Lines@127.0.0.1:7010 --out 127.0.0.1:7002"
)
SEND = "wallaroo send --to 127.0.0.1:7010 --file bill_of_rights.txt"
COMMITS = re.compile(r"(?<= )(40|42)\b")  # as pages name them
LIVE = ("status.md", "tuning.md", "runbook.md")  # pages about an application that runs


@cache
def addresses() -> dict[str, str]:
    """Addresses as pages write them, and free ones; a checkpoint knows its sinks by them."""
    written = (7010, 7002, 4040)
    return {
        f"127.0.0.1:{port}": f"127.0.0.1:{free}"
        for port, free in zip(written, free_ports(3), strict=True)
    }


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    return [line.removeprefix("$ ").split("  #")[0].strip() for line in lines if line[:2] == "$ "]


PAGES = [page for page in RUN if commands(page)]


def exception_for(command: str) -> tuple[str, str, str] | None:
    return next((each for each in NOT_RUN if re.match(each[0], command)), None)


def test_each_exception_has_a_reason_and_is_needed() -> None:
    every = [command for page in PAGES for command in commands(page)]
    for pattern, reason, elsewhere in NOT_RUN:
        assert any(re.match(pattern, command) for command in every), pattern
        assert reason
        assert (ROOT / elsewhere).exists(), elsewhere


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's folder: applications, data, and checkpoints of stopped runs."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name in ("word_count.py", "bill_of_rights.txt"):
        shutil.copy(ROOT / "examples" / "word_count" / name, folder)
    (folder / "totals.py").write_text(TOTALS.replace("state=Total", POLICY))
    (folder / "orders.jsonl").write_text('{"user": "ann"}\n')
    with reading(folder, RUNBOOK) as reader:  # nothing of its output leaves: without a receiver
        for _ in range(3):
            log = reader.start(WORDS)
            deadline = time.monotonic() + SOON_S
            while not reader.is_running(log):
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            code, printed = reader.run(SEND)
            assert code == 0, printed
            reader.end()
        letters = "--dead-letters dead.jsonl --no-live"
        code, printed = reader.run(f"wallaroo run totals.py --checkpoint totals {letters}")
        assert code == 0, printed
    return folder


POLICY = 'state=Total, on_error="dead-letter"'
RUNBOOK = ROOT / "docs" / "runbook.md"


@dataclass
class Reader:
    """A reader at a terminal, who follows one page."""

    folder: Path
    ports: dict[str, str]
    under_way: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def words(self, command: str) -> str:
        for written, used in self.ports.items():
            command = command.replace(written, used)
        command = re.sub(
            r"^wallaroo run\b", f"{sys.executable} -m wallaroo.cli.in_process", command
        )
        return re.sub(r"^wallaroo\b", f"{sys.executable} -m wallaroo", command)

    def start(self, command: str) -> Path:
        """Run in the background; return the file of all that is printed."""
        log = self.folder / f"{len(self.under_way)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                shlex.split(self.words(command)),
                cwd=self.folder,
                env=environment(),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        self.under_way.append(process)
        return log

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            self.words(command),
            shell=True,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def is_running(self, log: Path) -> bool:
        """Whether an application has said that it takes input."""
        return re.search(r" running |listen|press|Ctrl-C", log.read_text()) is not None

    def status_option(self, command: str) -> str:
        """The address at which pages ask the application of most pages."""
        if "run" not in command.split()[1]:
            return ""
        return " --no-live --status 127.0.0.1:4040" if "word_count" in command else " --no-live"

    def commits(self) -> dict[str, str]:
        """The numbers of commits that pages name, and those that this checkpoint retains."""
        code, printed = self.run("wallaroo state list --checkpoint counts --commits")
        assert code == 0, printed
        found = re.findall(r"^ *(\d+)  ", printed, re.MULTILINE)
        return {"40": min(found, key=int), "42": max(found, key=int)}

    def end_run(self, command: str) -> None:
        """End a run of the same application, as a reader does who starts it again."""
        application = next((word for word in command.split() if word.endswith(".py")), "")
        for process in self.under_way:
            if application in str(process.args) and process.poll() is None:
                process.send_signal(signal.SIGINT)
                # one that is still starting ends by the signal
                assert process.wait(WAIT_S) in (0, -signal.SIGINT)

    def end(self) -> None:
        """End what runs, applications first; all of it ends well."""
        for process in self.under_way:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0
        self.under_way.clear()


@cache
def private_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with a short name, for sockets and for the records of runs."""
    return tempfile.TemporaryDirectory(prefix="reader-")


def environment() -> dict[str, str]:
    """Without terminals and runs of others: `wallaroo status` finds this reader's alone."""
    runtime = private_folder().name
    python = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {"XDG_RUNTIME_DIR": runtime, "TMPDIR": runtime}
    return {**os.environ, **own, "PYTHONPATH": python}


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@contextmanager
def reading(folder: Path, page: Path) -> Iterator[Reader]:
    """The files that a page names, and what its commands start, ended at the end."""
    reader = Reader(folder, addresses())
    for block in blocks(page, "python"):
        if named := re.match(r"# (\w+)\.py\n", block):
            (folder / f"{named[1]}.py").write_text(block)
    try:
        yield reader
        reader.end()
    finally:
        for process in reader.under_way:
            process.kill()
            process.wait()


def follow(reader: Reader, command: str, eventually: Eventually) -> None:
    """Do what a command of a page does; what stays runs on beside the next ones."""
    if re.match(r"wallaroo (run|dev)\b", command):
        reader.end_run(command)
        log = reader.start(command + reader.status_option(command))
        process = reader.under_way[-1]
        eventually(
            lambda: process.poll() is not None or reader.is_running(log),
            f"it runs: {command}\n{log.read_text()}",
        )
        assert process.poll() in (None, 0), log.read_text()
    elif command.startswith("wallaroo receive"):
        reader.start(command)
        address = re.search(r"127[\d.:]+", reader.words(command))
        assert address
        eventually(lambda: is_open(address[0]), f"it listens: {command}")
    else:
        code, printed = reader.run(command)
        assert code == 0, f"{command}\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_run(
    page: Path, template: Path, tmp_path: Path, eventually: Eventually
) -> None:
    every = [command for command in commands(page) if exception_for(command) is None]
    if not every:
        pytest.skip("no command of this page runs here: each has its reason")
    folder = tmp_path / "reader"
    shutil.copytree(template, folder)
    with reading(folder, page) as reader:
        if page.name in LIVE:
            follow(reader, WORDS, eventually)
        numbers = reader.commits() if any(map(COMMITS.search, every)) else {}
        for command in every:
            follow(reader, COMMITS.sub(lambda number: numbers[number[0]], command), eventually)
