"""``wallaroo top`` on a terminal: it fits, follows its size, and leaves it as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator

import pytest
from rich.cells import cell_len

from wallaroo.processes.environment import python_environment

Eventually = Callable[..., None]
WATCH = """
import signal
import sys
from tests.unit.cli.test_top import Application
from wallaroo.cli import top
from wallaroo.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test in the background ignores it
top.only_one = lambda command: Application(looks=1 << 30)
sys.exit(main(["top", "--every", "0.05"]))
"""
ENTERED, LEFT = "\x1b[?1049h", "\x1b[?1049l"
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
HOME = "\x1b[H"
CONTROL = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
WIDE, NARROW = (80, 24), (40, 15)


def _without_size(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment without what would count instead of the terminal's size."""
    return {name: value for name, value in environment.items() if name not in ("LINES", "COLUMNS")}


class Terminal:
    """A terminal of the system, with ``wallaroo top`` in it."""

    def __init__(self, size: tuple[int, int]):
        self._main, self.other = pty.openpty()
        self.resize(size)
        self.before = termios.tcgetattr(self.other)
        self.process = subprocess.Popen(
            [sys.executable, "-c", WATCH],
            stdin=self.other,
            stdout=self.other,
            stderr=self.other,
            env={**_without_size(python_environment()), "TERM": "xterm-256color"},
            start_new_session=True,
        )
        self.text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self.text += os.read(self._main, 65536).decode(errors="replace")
            except OSError:
                return

    def resize(self, size: tuple[int, int]) -> None:
        """Change the size of the window; the system signals it to the program."""
        columns, rows = size
        fcntl.ioctl(self.other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._main, keys)

    def last_frame(self) -> list[str]:
        """Return the lines of the newest frame that is complete."""
        frames = self.text.split(HOME)
        return CONTROL.sub("", frames[-2]).splitlines() if len(frames) > 3 else []

    def fits(self, size: tuple[int, int]) -> bool:
        columns, rows = size
        lines = self.last_frame()
        widest = max(map(cell_len, lines), default=0)
        return bool(lines) and len(lines) <= rows and columns - 5 < widest <= columns

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.other)
        os.close(self._main)


@pytest.fixture(params=[WIDE, NARROW], ids=["80x24", "40x15"])
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(request.param)
    opened.size = request.param  # type: ignore[attr-defined]  # of the test
    yield opened
    opened.close()


@pytest.mark.parametrize("end", [b"q", signal.SIGINT], ids=["q", "Ctrl-C"])
def test_it_fits_the_terminal_and_leaves_it_as_it_was(
    terminal: Terminal, end: bytes | signal.Signals, eventually: Eventually
) -> None:
    size = terminal.size  # type: ignore[attr-defined]  # of the test
    eventually(lambda: terminal.fits(size), "a frame")

    if isinstance(end, bytes):
        terminal.press(end)
    else:
        terminal.process.send_signal(end)

    assert terminal.process.wait(400) == 0, terminal.text
    eventually(lambda: LEFT in terminal.text, "the end")
    assert terminal.text.index(ENTERED) < terminal.text.index(LEFT)
    assert terminal.text.rindex(HIDDEN) < terminal.text.rindex(SHOWN)
    assert termios.tcgetattr(terminal.other) == terminal.before
    assert "Traceback" not in terminal.text


def test_it_follows_the_size_of_its_window(eventually: Eventually) -> None:
    terminal = Terminal(WIDE)
    try:
        eventually(lambda: terminal.fits(WIDE), "a frame")
        terminal.resize(NARROW)
        eventually(lambda: terminal.fits(NARROW), "a frame of the new size")
        terminal.press(b"x")  # any other key
        assert terminal.process.poll() is None
    finally:
        terminal.close()
