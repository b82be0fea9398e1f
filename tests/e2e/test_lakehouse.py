"""The page "In a lakehouse": its commands with a real PostgreSQL and a Spark print what it has."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.connectors.postgres.server import Server, running_server
from tests.docs.test_code import blocks

pytestmark = [pytest.mark.spark, pytest.mark.java]
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "lakehouse.md"
EXAMPLE = ROOT / "examples" / "lakehouse"
WAIT_S = 400.0  # a JVM is started for the source of prices
LEFT_OUT = re.compile(r"cd |pip install ")
Eventually = Callable[..., None]


class Reader:
    """A reader who follows the page, in a folder like the example's."""

    def __init__(self, folder: Path, server: Server):
        self._folder = folder
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
        }

    def words(self, command: str) -> list[str]:
        words = shlex.split(command)
        program = {
            "python": [sys.executable],
            "wallaroo": [sys.executable, "-m", "wallaroo"],
        }.get(words[0], words[:1])
        if words[:2] == ["wallaroo", "run"]:
            return [sys.executable, "-m", "wallaroo.cli.in_process", *words[2:], "--no-live"]
        return [*program, *words[1:]]

    def printed_by(self, command: str) -> str:
        done = subprocess.run(
            self.words(command),
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines())

    @contextmanager
    def running(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(
                self.words(command), cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        try:
            yield process
            process.terminate()
            assert process.wait(WAIT_S) == 0, (self._folder / "log").read_text()
        finally:
            process.kill()
            process.wait()


def steps() -> list[tuple[str, str]]:
    """Return the page's commands, each with what it prints."""
    text = "\n".join(blocks(PAGE, "console"))
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", text, re.M)
    return [(command, output.strip("\n")) for command, output in found]


def test_the_commands_of_the_page_print_what_it_has(tmp_path: Path, eventually: Eventually) -> None:
    folder = tmp_path / "lakehouse"
    shutil.copytree(EXAMPLE, folder)
    commands = [step for step in steps() if not LEFT_OUT.match(step[0])]
    number = next(n for n, (words, _) in enumerate(commands) if words.startswith("wallaroo run"))
    with running_server("wal_level=logical") as server:
        reader = Reader(folder, server)
        for command, output in commands[:number]:
            assert reader.printed_by(command) == output
        with reader.running(commands[number][0]):
            eventually(lambda: server.ask("select * from pg_replication_slots"), "a slot is made")
            for command, output in commands[number + 1 :]:
                if not output:
                    assert reader.printed_by(command) == ""
                else:
                    eventually(
                        lambda: reader.printed_by(command) == output,  # noqa: B023  # called here
                        f"{command} prints\n{output}",
                    )
    assert len(commands) == 6


def test_the_page_has_the_example_s_files() -> None:
    statements = "".join(blocks(PAGE, "sql"))
    for name in ("shop.sql", "orders.sql"):
        assert (EXAMPLE / name).read_text() in statements
