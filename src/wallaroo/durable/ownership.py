"""Check of this run's ownership of its checkpoint.

Where it runs: everywhere that writes to disk or to another system.

A run holds a claim: its file ``owners/<epoch>`` in the checkpoint. The next run renames it
(`state.log.owners`). So every process of the run can check by opening one file, in some
microseconds.

The invariant: a process that is about to report a commit, or to delete, checks after the commit was
written or the files were listed. So the run that takes over has read everything that this one
reported, and none of its own files was on the list.

The file is opened, not looked up by ``stat``: a network file system guarantees to ask its server
only when a file is opened.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wallaroo.errors import CheckpointError, PeerError, TakenOverError

VARIABLE = "WALLAROO_OWNER"  # in a child's environment: its run's claim
OVER = ".over"  # after the name of a claim that is no longer valid
_GONE = {errno.ENOENT, errno.ESTALE, errno.ENOTDIR}


@dataclass(frozen=True, slots=True)
class Ownership:
    """The claim of a run.

    An empty ``path``: no other run can take it over.
    """

    path: str = ""
    inode: int = 0

    @property
    def epoch(self) -> str:
        """Return the name of the claim; empty if there is none."""
        return Path(self.path).name

    @property
    def is_held(self) -> bool:
        """Return whether the run still owns the checkpoint; raise PeerError without an answer."""
        if not self.path:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise PeerError(
                f"{self.path} cannot be opened: {error.strerror}. A run that cannot verify that "
                f"it owns its checkpoint ends. Repair the disk and run again."
            ) from error
        try:
            return os.fstat(descriptor).st_ino == self.inode
        finally:
            os.close(descriptor)

    def require(self) -> None:
        """Raise TakenOverError if another run owns the checkpoint, CheckpointError if none does."""
        if self.is_held:
            return
        owners = Path(self.path).parent
        if not owners.is_dir():
            raise CheckpointError(
                f"checkpoint {owners.parent} was removed while this run used it. This run ends. "
                f"Restore it from a backup, or begin in another folder."
            )
        raise TakenOverError(
            f"checkpoint {owners.parent} was taken over by {newest_owner(owners)}. This run "
            f"ends. What it had not committed by then, the other run processes; it sent and "
            f"deleted nothing since. Do not start it again beside the other one."
        )

    @property
    def waiting_for(self) -> str:
        """Return, in words, where `require` has had no answer from for a while; else empty."""
        return ""

    def to_text(self) -> str:
        """Return the claim in the form that children receive; empty if there is none."""
        return f"{self.inode}:{self.path}" if self.path else ""

    @staticmethod
    def from_text(text: str) -> Ownership:
        inode, _, path = text.partition(":")
        return Ownership(path, int(inode)) if path else UNOWNED


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOwnership(Ownership):
    """A run's claim that a machine without this folder may take over."""

    ask: Callable[[], None]
    silence: Callable[[], str]

    def require(self) -> None:
        """Raise TakenOverError if another run owns the checkpoint, here or elsewhere."""
        Ownership.require(self)
        self.ask()

    @property
    def waiting_for(self) -> str:
        return self.silence()


UNOWNED = Ownership()


def newest_owner(folder: Path) -> str:
    """Return the newest claim's description of its owner."""
    try:
        newest = max(name for name in os.listdir(folder) if name[:1].isdigit())
        words, _, _ = (folder / newest).read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return "another run"
    return f"epoch {int(newest.partition('.')[0])}, {words}" if words else "another run"
