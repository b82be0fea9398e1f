"""Runs of the stored application: its input, a run of it in a folder, what it wrote.

Where it runs: tests, and ``python -m tests.stored``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.stored import accounts, amounts, chunks, joins, panes

HERE = Path(__file__).parent
DATA = HERE / "data"
ROOT = HERE.parents[1]
HALF = 60  # events of each source before the stop, and after it
ACCOUNTS = "abcde"
SOURCES = {
    "accounts": accounts.SOURCES,
    "amounts": amounts.SOURCES,
    "joins": joins.SOURCES,
    "panes": panes.SOURCES,
    "chunks": chunks.SOURCES,
}
# output files with a line per event of a source, whatever the time is
COUNTED = {
    "accounts": ("plain.txt", "plain right.txt"),
    "amounts": ("largest.txt",),
    "joins": ("left.txt", "right.txt"),
    "panes": ("left.txt", "right.txt"),
    "chunks": ("left.txt", "right.txt"),
}
# output files with a line for each account when the last event's time has passed
FLUSHED = {
    "accounts": "expiring.txt",
    "joins": "windows.txt",
    "panes": "joined.txt",
    "chunks": "sessions.txt",
}
BEGIN_S = 1_600_000_000
IN_PROCESS = ("wallaroo.cli.in_process",)
HOSTS = {
    "micro-batch": ("wallaroo", "run", "--host", "micro-batch"),
    "low": ("wallaroo", "run", "--latency", "low"),
}
LIMIT_S = 400.0


def unpack(archive: Path, folder: Path) -> None:
    """Unpack stored data: no filter of `tarfile`, which Python 3.11.2 is without."""
    shutil.unpack_archive(archive, folder)


def events(source: str) -> list[bytes]:
    """Return a source's whole input: an account, a number and a time each, up to two seconds out
    of order; the last one ends all that waits for time.
    """
    lines: list[tuple[str, int, int]] = []
    for number in range(2 * HALF):
        account = ACCOUNTS[(number * 7 + len(source)) % len(ACCOUNTS)]
        at = BEGIN_S + number + (number * 5) % 3 + (12 if number > HALF + 20 else 0)
        lines.append((account, number + 1, at))
    lines.append(("z", 2 * HALF + 1, BEGIN_S + 10_000))
    if source == "rows":
        return [struct.pack(">4sd", account.encode(), number) for account, number, _ in lines]
    return [f"{account} {number} {at}".encode() for account, number, at in lines]


def run(folder: Path, application: str, command: Sequence[str], part: slice) -> None:
    """Run the application in a folder, send it a part of its input, stop it when all is out."""
    ports = _free_ports(len(SOURCES[application]))
    module, *arguments = command
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", module, *arguments, str(HERE / f"{application}.py")),
                *("--checkpoint", "checkpoint", "--status", "off"),
                *("--ports", ",".join(map(str, ports))),
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    clients = []
    try:
        for source, port in zip(SOURCES[application], ports, strict=True):
            client = _connected(port, process, folder)
            clients.append(client)
            for line in events(source)[part]:
                client.sendall(struct.pack(">I", len(line)) + line)
        total = 2 * HALF + 1 if part.stop is None else part.stop
        for name in COUNTED[application]:
            _wait(lambda name=name: len(outputs(folder, name)) == total, name, process, folder)
        if part.stop is None and application in FLUSHED:
            flushed = FLUSHED[application]
            _wait(lambda: _has_flushed(folder, flushed), "what waits for time", process, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0, (folder / "log").read_text()
        for client in clients:
            client.close()


def outputs(folder: Path, name: str) -> list[str]:
    """Return the committed lines of an output file."""
    path = folder / "out" / name
    return path.read_text().splitlines() if path.exists() else []


def everything(folder: Path) -> dict[str, list[str]]:
    """Return all output, by file; sorted, since the order between keys is not promised."""
    return {path.name: sorted(outputs(folder, path.name)) for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted((folder / "out").iterdir()) if path.suffix == ".txt")


def _has_flushed(folder: Path, name: str) -> bool:
    """Whether the last event's time has passed for every account."""
    return set(ACCOUNTS) <= {line.split()[0] for line in outputs(folder, name)}


def _connected(port: int, process: subprocess.Popen[bytes], folder: Path) -> socket.socket:
    found: list[socket.socket] = []

    def connects() -> bool:
        try:
            found.append(socket.create_connection(("127.0.0.1", port)))
        except OSError:
            return False
        return True

    _wait(connects, f"port {port}", process, folder)
    return found[0]


def _wait(
    condition: Callable[[], object], what: str, process: subprocess.Popen[bytes], folder: Path
) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert process.poll() is None, (folder / "log").read_text()
        assert time.monotonic() < until, f"not in time: {what}: {(folder / 'log').read_text()}"
        time.sleep(0.02)


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
