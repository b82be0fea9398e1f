"""Word count into PostgreSQL on real Spark, with the driver killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connectors.postgres.server import Server, running_server
from tests.connectors.postgres.words import word_at

APPLICATION = Path(__file__).with_name("words.py")
SOURCE = Path(__file__).parents[3] / "src"
WORDS = 8000
FIRST_ROWS_SECONDS_MAX = 400.0
END_SECONDS_MAX = 400.0

pytestmark = [pytest.mark.postgres, pytest.mark.java, pytest.mark.spark]


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def start(server: Server, folder: Path) -> subprocess.Popen[bytes]:
    """Start the application as a user does."""
    options = [
        "--master",
        "local[2]",
        "--batch-time",
        "0.3",
        "--checkpoint",
        str(folder / "checkpoint"),
        "--log-level",
        "error",
    ]
    own = [
        "--dsn",
        server.dsn,
        "--table",
        "totals",
        "--words",
        str(WORDS),
        "--gate",
        str(folder / "gate"),
    ]
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "wallaroo", "run", *options, str(APPLICATION), *own],
            stdout=log,
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
        )


def rows(server: Server) -> int:
    """How many rows the table has."""
    return int(server.ask("SELECT count(*) FROM totals")[0][0])


def expected() -> dict[str, list[int]]:
    """Per word its counts in order: 1, 2, 3, ..."""
    return {
        word: list(range(1, count + 1))
        for word, count in Counter(map(word_at, range(WORDS))).items()
    }


@pytest.mark.long
def test_word_count_with_a_killed_driver_ends_with_the_oracles_table(
    server: Server, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    server.ask(
        "CREATE TABLE totals (id bigint GENERATED ALWAYS AS IDENTITY, word text, total bigint)"
    )
    process = start(server, tmp_path)
    try:
        eventually(lambda: rows(server) > 0, "the first half comes")
        (tmp_path / "gate").touch()
        eventually(lambda: rows(server) > WORDS // 2 + 1, "the second half begins to come")
        process.send_signal(signal.SIGKILL)
        process.wait()
        rows_at_kill = rows(server)
        (tmp_path / "gate.last").touch()
        process = start(server, tmp_path)
        assert process.wait(END_SECONDS_MAX) == 0, (tmp_path / "run.log").read_text()
    finally:
        process.kill()
        process.wait()
    found: dict[str, list[int]] = {}
    for word, total in server.ask("SELECT word, total FROM totals ORDER BY id"):
        found.setdefault(word, []).append(total)
    assert found == expected()
    assert WORDS // 2 < rows_at_kill < WORDS, "the kill was not in the middle"
