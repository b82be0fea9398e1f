"""Bits flipped in the files of a run that is not running.

Where it runs: the verifier.  Every kind of file of a checkpoint gets its turn.  What users read
themselves (the output of a file sink) carries no checksum and is left alone.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

# kind -> where its files are, below the checkpoint; the order is that of the first turn
KINDS: dict[str, tuple[str, ...]] = {
    "commit": ("commits/*",),
    "delta": ("deltas/*",),
    "snapshot": ("snapshots/**/*",),
    "view": ("view/**/data.mdb",),
    "spool": ("spool/**/*.chunks",),
    "spool index": ("spool/**/*.index",),
    "spool head": ("spool/**/head",),
    "spool tail": ("spool/**/tail",),
    "staged output": ("outbox/**/*.out",),
    "pending list": ("outbox/**/pending/*", "outbox/**/*.pending"),
    "progress": ("outbox/**/progress",),
    "sink record": ("outbox/**/target*", "outbox/**/left*"),
    "format": ("format.json",),
    "plan": ("plan.json",),
}


@dataclass(frozen=True, slots=True)
class Flip:
    """One flipped bit."""

    kind: str
    file: Path
    byte: int
    mask: int

    def undo(self) -> None:
        """Flip it back, if the byte is still as it was left."""
        try:
            with self.file.open("r+b") as file:
                _flip(file.fileno(), self.byte, self.mask)
        except FileNotFoundError:
            return


def flip(root: Path, chance: random.Random, seen: set[str]) -> Flip | None:
    """Flip a bit in a file below ``root``: of a kind that is not in ``seen``, where there is one;
    None where there is no file.
    """
    files = {kind: _files(root, patterns) for kind, patterns in KINDS.items()}
    kinds = [kind for kind, found in files.items() if found]
    if not kinds:
        return None
    fresh = [kind for kind in kinds if kind not in seen]
    kind = fresh[0] if fresh else chance.choice(kinds)
    file = chance.choice(files[kind])
    chosen = Flip(kind, file, chance.randrange(file.stat().st_size), 1 << chance.randrange(8))
    with file.open("r+b") as opened:
        _flip(opened.fileno(), chosen.byte, chosen.mask)
    return chosen


def _files(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = {path for pattern in patterns for path in root.glob(pattern)}
    return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _flip(descriptor: int, byte: int, mask: int) -> None:
    content = os.pread(descriptor, 1, byte)
    if content:
        os.pwrite(descriptor, bytes([content[0] ^ mask]), byte)
