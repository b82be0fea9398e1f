"""Secrets of a Spark source, in its settings, options and paths: in nothing that a run writes,
prints or shows.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from wallaroo.monitoring.status_api.discovery import RUN_FILE

pytestmark = [pytest.mark.spark, pytest.mark.java]
WAIT_S = 400.0
SECRET = "hunter2"
APPLICATION = f'''
import pathlib
import sys

import wallaroo
from wallaroo.sources import SparkSourceConfig

FOLDER = pathlib.Path(__file__).parent


def read(spark):
    assert spark.conf.get("spark.hadoop.fs.s3a.secret.key") == "{SECRET}"
    stream = spark.readStream.schema("id long").option("password", "{SECRET}")
    return stream.json(str(FOLDER / "in"))


def fail(spark):
    frame = spark.read.format("text").option("password", "{SECRET}")
    return frame.load("/nowhere?user=me&password={SECRET}")


def application_setup(args):
    rows = SparkSourceConfig(
        "rows",
        fail if "--fail" in args else read,
        conf={{"spark.hadoop.fs.s3a.secret.key": "{SECRET}", "spark.some.password": "{SECRET}"}},
    )
    line = wallaroo.encoder(lambda row: str(row["id"]) + "\\n")
    sink = wallaroo.FileSinkConfig(FOLDER / "out.txt", line)
    return wallaroo.build_application("rows", wallaroo.source("rows", rows).to_sink(sink))
'''
Eventually = Callable[..., None]


def command(folder: Path, *words: str) -> list[str]:
    run = [sys.executable, "-m", "wallaroo.cli.in_process", str(folder / "application.py")]
    return [*run, "--no-live", "--checkpoint", str(folder / "state"), *words]


def printed(*words: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "wallaroo", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def has_secret(content: bytes) -> bool:
    """Return whether the secret is there, as it is or in something that is in base64."""
    parts = [content]
    for text in re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", content):
        with contextlib.suppress(ValueError):
            parts.append(base64.b64decode(text))
    return any(SECRET.encode() in part for part in parts)


def secret_files(folder: Path) -> list[Path]:
    """Return the files that have the secret."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if has_secret(path.read_bytes())]


def command_lines(pid: int) -> Iterator[str]:
    """Those of the processes of a run."""
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            yield " ".join(child.cmdline())


def test_secrets_of_a_source_are_in_no_file_no_command_line_and_no_status(
    tmp_path: Path, eventually: Eventually
) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 7}\n')
    root, out, log, scratch = (tmp_path / name for name in ("state", "out.txt", "log", "tmp"))
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with log.open("wb") as file:
        process = subprocess.Popen(command(tmp_path), stdout=file, stderr=file, env=environment)
    try:
        eventually(
            lambda: process.poll() is not None or (out.exists() and out.read_text() == "7\n"),
            "the row",
        )
        assert process.poll() is None, log.read_text()
        lines = list(command_lines(process.pid))
        assert any("java" in line for line in lines)
        shown = printed("status", root, "--json")
        shown += printed("sql", "select * from commits", "--checkpoint", root)
        assert "rows" in shown
        assert SECRET not in "".join(lines) + shown
        assert (root / RUN_FILE).exists()
        assert any(path.name.startswith("wallaroo-") for path in scratch.iterdir())
        assert secret_files(scratch) == []
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)
    assert process.returncode == 0, log.read_text()
    assert list(root.rglob("offsets/*")), "Spark's notes are not there"
    assert secret_files(root) == []
    assert not has_secret(log.read_bytes())


def test_secrets_of_a_source_are_not_in_the_sentence_of_a_run_that_cannot_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    done = subprocess.run(
        command(tmp_path, "--fail"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "/nowhere?user=me&password=***" in said
    assert SECRET not in said
    assert "Traceback" not in said
    assert "java." not in said
