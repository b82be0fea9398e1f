"""Claims: each run owns the checkpoint until the next run claims it.

Where it runs: driver, at the start of a run or command.

A claim is the file ``owners/<epoch>``, created exclusively with a number above all others.  Then
all earlier claims are renamed with the suffix ``.over``, from which their runs learn that they are
over (`durable.ownership`).  After that the log is read, and the line that the run continues is
added to its claim (`state.log.line`); with that line on disk, and the claim still held, the run
begins to act.

The invariants:

* Nothing is reported to others, and nothing deleted, between the claim and a line that is on disk
  while the claim is held.
* An earlier run writes a commit, checks its claim, then reports; so a reported commit existed
  before the new claim and is on the line. Its later commits have other names and are on no line:
  its next check shows that, and it reports nothing.
* A claim is read under either name, and deleted only by a run whose own line is on disk.
  So a line that a run acted on is never lost, even if many runs start at once and die.
* A number is used once: a run that created a claim below another one, because it was delayed in
  between, takes a new one. Claims are compared by inode, and by their later name, which is unique;
  the first name could be reused.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wallaroo.durable.folders import make_private
from wallaroo.durable.ownership import OVER, Ownership
from wallaroo.durable.whole_file import PRIVATE_FILE, sync_folder, write_all
from wallaroo.errors import InUseError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.state.log.layout import OWNERS
from wallaroo.state.log.line import Line, claim_files, encode_line


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's claim to a checkpoint, open until the run ends.

    So no other file can have its inode.
    """

    epoch: int
    ownership: Ownership
    file: IO[bytes]
    is_durable: bool

    def fence(self, line: Line) -> None:
        """Make ``line`` the one that counts, unless a newer claim has one; remove those before.

        It has all that the runs before this one reported.  So they are no longer needed, also
        if another run has claimed the checkpoint meanwhile.
        """
        fault_point("owner.line")
        write_all(self.file.fileno(), encode_line(line))
        if self.is_durable:
            os.fsync(self.file.fileno())
        folder = Path(self.ownership.path).parent
        for claim in claim_files(os.listdir(folder)):
            if claim.epoch < self.epoch and not claim.name.isdigit():
                fault_point("owner.forget")
                (folder / claim.name).unlink(missing_ok=True)

    def concede(self, reason: str) -> None:
        """Note that another run, which does not use this folder, owns the checkpoint."""
        folder = Path(self.ownership.path).parent
        path = folder / f"{self.epoch + 1:012d}"
        with contextlib.suppress(FileExistsError), open(path, "x") as file:
            file.write(f"{reason}\n")
        _end_earlier(folder, self.epoch + 1, self.is_durable)

    def release(self) -> None:
        """Close the file; the claim stays until the next run's."""
        self.file.close()


def owner_words() -> str:
    """Return the description by which a run identifies itself to others."""
    return process_words(os.getpid(), socket.gethostname())


def process_words(pid: int, host: str) -> str:
    """Return the description of a run's process to others."""
    return f"process {pid} on {host}"


def make_claim(root: Path, is_durable: bool, after: int | None = None) -> Claim:
    """Claim the checkpoint in ``root``: no other run owns it from now on.

    With ``after`` only as the next owner after that epoch.  Raises InUseError: there is one.
    """
    folder = root / OWNERS
    make_private(folder, is_durable=is_durable)
    while True:
        epoch = newest_epoch(folder) + 1
        if after is not None and epoch != after + 1:
            raise InUseError(
                f"checkpoint {root} was claimed by another run (epoch {epoch - 1}) a moment ago. "
                f"Let that run continue."
            )
        path = folder / f"{epoch:012d}"
        fault_point("owner.claim")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            file = os.fdopen(os.open(path, flags, PRIVATE_FILE), "rb", buffering=0)
        except FileExistsError:
            continue
        try:
            _describe(file, is_durable)
            if is_durable:
                sync_folder(folder)
            if newest_epoch(folder) > epoch:
                file.close()
                continue
            _end_earlier(folder, epoch, is_durable)
        except BaseException:
            file.close()
            raise
        ownership = Ownership(str(path), os.fstat(file.fileno()).st_ino)
        return Claim(epoch, ownership, file, is_durable)


def adopt_claim(root: Path, epoch: int, words: str) -> Claim:
    """Claim the copy in ``root`` for a run of another host, under its epoch.  Raises OSError.

    Raises InUseError if the copy had this epoch, or a later one.
    """
    folder = root / OWNERS
    make_private(folder, is_durable=True)
    path = folder / f"{epoch:012d}"
    newest = newest_epoch(folder)
    if newest < epoch:
        with contextlib.suppress(FileExistsError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            file = os.fdopen(os.open(path, flags, PRIVATE_FILE), "rb", buffering=0)
            write_all(file.fileno(), f"{words}\n".encode())
            os.fsync(file.fileno())
            sync_folder(folder)
            newest = newest_epoch(folder)
            if newest == epoch:
                fault_point("owner.adopt")
                _end_earlier(folder, epoch, is_durable=True)
                return Claim(
                    epoch, Ownership(str(path), os.fstat(file.fileno()).st_ino), file, True
                )
            file.close()
    raise InUseError(f"copy {root} was claimed in epoch {newest}, and not before epoch {epoch}.")


def _describe(file: IO[bytes], is_durable: bool) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(time.time_ns() // 10**9))
    write_all(file.fileno(), f"{owner_words()}, since {since}\n".encode())
    if is_durable:
        os.fsync(file.fileno())


def newest_epoch(folder: Path) -> int:
    """Return the number of the newest claim; 0 if there is none.  Raises OSError."""
    claims = claim_files(os.listdir(folder))
    return claims[0].epoch if claims else 0


def _end_earlier(folder: Path, epoch: int, is_durable: bool) -> None:
    """Remove the names of all earlier claims: their runs own nothing from now on."""
    for claim in claim_files(os.listdir(folder)):
        if claim.epoch < epoch and claim.name.isdigit():
            fault_point("owner.end")
            with contextlib.suppress(FileNotFoundError):  # another run removed it
                over = f"{claim.name}.{uuid.uuid4().hex[:12]}{OVER}"
                os.rename(folder / claim.name, folder / over)
    if is_durable:
        sync_folder(folder)
