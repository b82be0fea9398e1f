"""A whole run on a terminal: outputs, prints of steps and the table beside each other."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
DEADLINE_S = 400.0
APPLICATION = """
import logging
import wallaroo

@wallaroo.computation(name="Double")
def double(line):
    print("doubling", line)
    logging.getLogger(__name__).info("log of %s", line)
    return line * 2

def application_setup(args):
    lines = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt"))
    return wallaroo.build_application("App", lines.to(double).to_sink(wallaroo.StdoutSinkConfig()))
"""


def on_a_terminal(command: list[str], folder: Path) -> tuple[int, str]:
    """The exit code, and everything written to a terminal of 40 lines and 120 columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    written = b""
    end_s = time.monotonic() + DEADLINE_S
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        try:
            while time.monotonic() < end_s:
                if not select.select([ours], [], [], 1.0)[0]:
                    continue
                try:
                    written += os.read(ours, 65536)
                except OSError:  # Linux: the last process that has it open is gone
                    break
        finally:
            process.kill()
            os.close(ours)
    return process.returncode, written.decode()


def test_outputs_and_what_steps_print_are_all_on_the_terminal_above_the_table(
    tmp_path: Path,
) -> None:
    (tmp_path / "app.py").write_text(APPLICATION)
    (tmp_path / "in.txt").write_text("a\nb\nc\n")
    command = [sys.executable, "-m", "wallaroo", "run", "app.py", "--master", "local[1]"]

    code, written = on_a_terminal(command, tmp_path)

    lines = re.split(r"\r|\n|\x1b\[[0-9;?]*[A-Za-z]", written)
    assert code == 0, written
    for text in ("aa", "bb", "cc"):
        assert lines.count(text) == 1, written
    for text in "abc":
        assert lines.count(f"[Double, worker 1] doubling {text}") == 1, written
        assert lines.count(f"[Double, worker 1] INFO:app:log of {text}") == 1, written
    assert any(re.fullmatch(r"starting Spark: [\d.]+ s", line) for line in lines), written
    # the table came back below the last of them
    assert written.rindex("checkpoint ") > max(map(written.rindex, ("aa", "bb", "cc")))
