"""Flame graphs of a running application, recorded from outside by py-spy.

Where it runs: a terminal, on the driver's machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from wallaroo.errors import PeerError, install_command

RATE = 100  # samples per second
END_S = 60.0  # for py-spy to write its file


class FlameGraph:
    """A recording in progress, of a process and its Python descendants."""

    def __init__(self, driver: int, seconds: int, target: Path):
        self._target = target
        self._seconds = seconds
        command = [find_program(), "record", "--subprocesses", "--format", "flamegraph"]
        command += ["--duration", str(seconds), "--rate", str(RATE), "--output", str(target)]
        self._process = subprocess.Popen(
            [*command, "--pid", str(driver)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        """Wait for the file.  Raises PeerError if there is none."""
        try:
            _, said = self._process.communicate(timeout=self._seconds + END_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise PeerError("py-spy did not end; no flame graph was written.") from error
        if self._process.returncode != 0 or not self._target.exists():
            raise PeerError(refusal(said))


def refusal(said: str) -> str:
    """Return why there is no flame graph, judging by py-spy's output."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if "ermission" in said or "EPERM" in said or "root" in said:
        return (
            "py-spy may not look into other processes here. Run it as root, or allow it: "
            "sysctl kernel.yama.ptrace_scope=0; in a container add the capability SYS_PTRACE."
        )
    return f"py-spy wrote no flame graph: {lines[-1] if lines else 'it said nothing'}"


def find_program() -> str:
    """Return the path of py-spy.  Raises PeerError if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    if beside.exists():
        return str(beside)
    try:
        files = metadata.files("py-spy") or []
    except metadata.PackageNotFoundError:
        files = []
    own = next((str(file.locate()) for file in files if file.name == "py-spy"), None)
    found = own or shutil.which("py-spy")
    if found is None:
        raise PeerError(f"--flame needs py-spy. Install it: {install_command('py-spy')}")
    return found
