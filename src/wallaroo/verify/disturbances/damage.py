"""Bits flipped in the files of a stopped run.

Where it runs: the verifier.  Every kind of file of a checkpoint is damaged in turn.  Files that
users read themselves (the output of a file sink) have no checksum and are left alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wallaroo.verify.result import Result

# kind -> its files, below the checkpoint; the order is that of the first turn
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
        """Flip the bit back, if the file still exists."""
        try:
            with self.file.open("r+b") as file:
                _flip(file.fileno(), self.byte, self.mask)
        except FileNotFoundError:
            return


def flip(root: Path, chance: random.Random, seen: set[str]) -> Flip | None:
    """Flip a bit in a file below ``root``; return None if there is no file.

    The file is of a kind that is not in ``seen``, if there is one.
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


class Flips:
    """Bits flipped in the checkpoint in ``folder``.

    They stay flipped until a start of the run names their files.
    """

    def __init__(self, folder: Path, result: Result, say: Callable[[str], None]):
        self._folder = folder
        self._result = result
        self._say = say
        self._there: list[Flip] = []  # still in the files
        self._flipped: set[str] = set()  # kinds that had their turn

    def add(self, chance: random.Random) -> Flip | None:
        """Flip another bit; return None if there is no file."""
        flipped = flip(self._folder / "checkpoint", chance, self._flipped)
        if flipped is not None:
            self._there.append(flipped)
            self._flipped.add(flipped.kind)
        return flipped

    def undo_named(self, said: str) -> bool:
        """Flip back the bits whose files an ended run named; return whether there are any.

        ``said`` is the run's output; such bits explain its end.
        """
        named = [one for one in self._there if _names(said, one.file)]
        for one in named:
            one.undo()
            self._there.remove(one)
            self._result.refused[one.kind] += 1
            self._say(f"refused, and named {one.file.relative_to(self._folder)}: flipped back")
        return bool(named)


def _names(said: str, file: Path) -> bool:
    """Return whether a text names a file, by its path or by its folder's name and its own."""
    return str(file) in said or f"{file.parent.name}/{file.name}" in said


def _files(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = {path for pattern in patterns for path in root.glob(pattern)}
    return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _flip(descriptor: int, byte: int, mask: int) -> None:
    content = os.pread(descriptor, 1, byte)
    if content:
        os.pwrite(descriptor, bytes([content[0] ^ mask]), byte)
