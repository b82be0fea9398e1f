"""How far one sink's output has left: a small file that survives a SIGKILL between any two
instructions.

Where it runs: egress (one writer, under the outbox's lock).

The law: the file has two slots, written in turn, each with a sequence number and a checksum; the
valid slot with the higher number counts. A write that was cut short spoils one slot and leaves the
one before it.  ``accepted`` holds as long as the machine has not restarted (what a socket took is
delivered by the kernel, also after the process is gone); after a restart only ``acked`` holds.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from wallaroo.errors import CheckpointError
from wallaroo.faults import fault_point

RECORD = struct.Struct(">4sHQQQqQ36s")
SLOT_BYTES = 128  # a slot never straddles a disk sector
MAGIC, VERSION = b"WLPG", 1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A text that changes when the machine restarts; empty where the system has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()[:36]
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets count output bytes of this sink since the checkpoint began."""

    accepted: int = 0  # handed to the socket
    acked: int = 0  # confirmed by the other side, as far as its protocol can
    released_batch: int = -1  # last batch that never has to be sent again
    released_end: int = 0  # where that batch ended


class ProgressFile:
    """Reads and writes the progress of one outbox."""

    def __init__(self, path: Path, is_durable: bool):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._is_durable = is_durable
        self._boot = boot_id()
        self._sequence = 0
        self.progress = self._read(path)

    def write(self, progress: Progress) -> None:
        """Record; survives a SIGKILL, not yet a power cut."""
        fault_point("egress.progress")
        self._sequence += 1
        raw = RECORD.pack(
            MAGIC,
            VERSION,
            self._sequence,
            progress.accepted,
            progress.acked,
            progress.released_batch,
            progress.released_end,
            self._boot.encode(),
        )
        os.pwrite(
            self._file, raw + zlib.crc32(raw).to_bytes(4, "big"), self._sequence % 2 * SLOT_BYTES
        )
        self.progress = progress

    def sync(self) -> None:
        """Make what was written survive a power cut, where that was asked for."""
        if self._is_durable:
            fault_point("egress.fsync")
            os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _read(self, path: Path) -> Progress:
        found, is_same_boot = Progress(), True
        slots = [os.pread(self._file, RECORD.size + 4, place * SLOT_BYTES) for place in (0, 1)]
        for slot in slots:
            if len(slot) != RECORD.size + 4 or zlib.crc32(slot[:-4]) != int.from_bytes(
                slot[-4:], "big"
            ):
                continue
            magic, version, sequence, accepted, acked, batch, end, boot = RECORD.unpack(slot[:-4])
            if magic != MAGIC or version > VERSION:
                raise CheckpointError(
                    f"{path} was written by another version of wallaroo (format {version}, this "
                    f"one "
                    f"reads up to {VERSION}). Run the version that wrote it."
                )
            if sequence > self._sequence:
                self._sequence, found = sequence, Progress(accepted, acked, batch, end)
                is_same_boot = boot.rstrip(b"\0").decode() == self._boot
        if self._sequence == 0 and any(slot.strip(b"\0") for slot in slots):
            raise CheckpointError(
                f"{path} does not match its checksum, so how far the output has left is unknown. "
                f"Restore it from a copy of the checkpoint; or remove it, and all output "
                f"that is still in the outbox is sent again."
            )
        return found if is_same_boot else replace(found, accepted=found.acked)
