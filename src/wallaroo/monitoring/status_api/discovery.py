"""Registration of running applications.

There is one file in the checkpoint and one per user.

Where it runs: driver writes, a terminal reads.

``run.json`` in the checkpoint leads from the folder to the run; a file per run in the user's folder
lets all runs be found.  Both have the same content: process, application, checkpoint, host, time of
start, and the HTTP server's address, token and certificate.  Only the user may read them.  A run
that was killed leaves them in place: a reader relies on the process and on an answer from the
address, not on the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec
import psutil

from wallaroo.errors import PeerError

RUN_FILE = "run.json"
FOLDER = "wallaroo"
PROBE_S_MAX = 1.0  # for a connection to a run on this machine


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run, as it described itself at its start."""

    pid: int
    http: str  # HOST:PORT, as the server was configured
    application: str
    started_at: float  # unix seconds
    host: str = ""  # name of the machine
    checkpoint: str = ""  # folder; a temporary one if the run has none to keep
    token: str = field(default="", repr=False)  # required by its server; the files are private
    certificate: str = field(default="", repr=False)  # PEM; empty: its server speaks plain HTTP

    @property
    def is_here(self) -> bool:
        """Return whether this machine wrote the record."""
        return self.host in ("", socket.gethostname())

    @property
    def is_alive(self) -> bool:
        """Return whether its process exists; on another machine that is assumed."""
        return not self.is_here or (self.pid > 0 and psutil.pid_exists(self.pid))

    @property
    def address(self) -> tuple[str, int]:
        """Return the address to connect to; this machine's if it listens everywhere."""
        host, _, port = self.http.rpartition(":")
        host = host.strip("[]")
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1" if self.is_here else self.host
        return host, int(port)


@dataclass(frozen=True, slots=True)
class Registration:
    """The files of one run."""

    files: tuple[Path, ...]
    content: bytes

    def withdraw(self) -> None:
        """Remove the files, unless another run replaced them; safe to repeat."""
        for file in self.files:
            with contextlib.suppress(OSError):
                if file.read_bytes() == self.content:
                    file.unlink()


def register(root: Path | None, record: RunRecord) -> Registration:
    """Write the run's files; only the checkpoint's may fail, with PeerError.

    Without ``root`` there is none in the checkpoint: that is the leader's, and this is a standby.
    """
    content = json.dumps(asdict(record)).encode()
    files = [] if root is None else [root / RUN_FILE]
    for file in files:
        try:
            _write(file, content)
        except OSError as error:
            raise PeerError(
                f"{file} cannot be written: {error.strerror}. Free or mount the disk and run again."
            ) from error
    folder = folders()[0]
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(folder):
            files.append(folder / f"{record.pid}-{record.address[1]}.json")
            _write(files[-1], content)
    return Registration(tuple(files), content)


def folders() -> list[Path]:
    """Return the user's folders, the one to write to first; services may lack a runtime one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    shared = Path(tempfile.gettempdir(), f"{FOLDER}-{os.getuid()}")
    return [Path(runtime, FOLDER), shared] if runtime and Path(runtime).is_dir() else [shared]


def running() -> list[RunRecord]:
    """Return this user's runs on this machine, oldest first; remove ended ones' files."""
    applications = []
    for folder in folders():
        if not folder.is_dir() or not _is_private(folder):
            continue
        for file in sorted(folder.glob("*.json")):
            record = _read(file)
            if record is not None and record.is_alive and _is_listening(record):
                applications.append(record)
            elif record is None or record.is_here:
                with contextlib.suppress(OSError):
                    file.unlink(missing_ok=True)
    return sorted(applications, key=lambda record: record.started_at)


def run_of(root: Path) -> RunRecord | None:
    """Return a checkpoint's last run, None if it ended normally."""
    return _read(root / RUN_FILE)


def _read(file: Path) -> RunRecord | None:
    try:
        record = msgspec.json.decode(file.read_bytes(), type=RunRecord, strict=False)
        return record if record.address else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PeerError(
            f"{file} cannot be read: {error.strerror}. Ask as the user who runs the application."
        ) from error
    except (msgspec.MsgspecError, ValueError):
        return None


def _write(file: Path, content: bytes) -> None:
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
    os.rename(unfinished, file)


def _is_private(folder: Path) -> bool:
    """Return whether a folder is the user's own; others may take names in a temporary one."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _is_listening(record: RunRecord) -> bool:
    """Return whether its port, rather than a reused process number, is busy."""
    try:
        socket.create_connection(record.address, PROBE_S_MAX).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        return True
    return True
