"""Bits flipped in the files of a stopped run.

Every kind of file of a checkpoint is damaged in turn.  Files that users read themselves (the output
of a file sink) have no checksum and are left alone.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wallaroo.testing.verify.trial.result import Result

AROUND = 8  # bytes on each side of a flipped one, to recognise it

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
    damaged: bytes  # the byte after the flip, with its neighbours

    def undo(self) -> None:
        """Flip the bit back, unless the file was removed or rewritten around the bit."""
        try:
            with self.file.open("r+b") as file:
                if _around(file.fileno(), self.byte, len(self.damaged)) == self.damaged:
                    _flip(file.fileno(), self.byte, self.mask)
        except FileNotFoundError:
            return


def flip(root: Path, chance: random.Random, seen: set[str]) -> Flip | None:
    """Flip a bit below ``root``, of a new kind of file if any; None if there is no file."""
    files = {kind: _files(root, patterns) for kind, patterns in KINDS.items()}
    kinds = [kind for kind, found in files.items() if found]
    if not kinds:
        return None
    fresh = [kind for kind in kinds if kind not in seen]
    kind = fresh[0] if fresh else chance.choice(kinds)
    file = chance.choice(files[kind])
    byte = chance.randrange(file.stat().st_size)
    mask = 1 << chance.randrange(8)
    with file.open("r+b") as opened:
        _flip(opened.fileno(), byte, mask)
        damaged = _around(opened.fileno(), byte)
    return Flip(kind, file, byte, mask, damaged)


class BitFlips:
    """Bits flipped in the checkpoint in ``folder``.

    They stay flipped until a start of the run names their files.
    """

    def __init__(self, folder: Path, result: Result, say: Callable[[str], None]):
        self._folder = folder
        self._result = result
        self._say = say
        self._there: list[Flip] = []  # flips that are still in the files
        self._flipped: set[str] = set()  # kinds that had their turn

    def add(self, chance: random.Random) -> Flip | None:
        """Flip another bit; return None if there is no file."""
        flipped = flip(self._folder / "checkpoint", chance, self._flipped)
        if flipped is not None:
            self._there.append(flipped)
            self._flipped.add(flipped.kind)
        return flipped

    @property
    def left(self) -> int:
        """Return how many bits no reader reported: rewritten with their files, or never read."""
        return len(self._there)

    def undo_named(self, said: str) -> bool:
        """Flip back the bits whose files a reader reported; return whether there are any.

        ``said`` is an ended run's output, whose end such bits explain, or an error's text.
        """
        # the last one first: a neighbouring bit is recognised by its former surrounding bytes
        named = [one for one in reversed(self._there) if _names(said, one.file)]
        for one in named:
            one.undo()
            self._there.remove(one)
            self._result.refused[one.kind] += 1
            self._say(f"refused, and named {one.file.relative_to(self._folder)}: flipped back")
        return bool(named)


def _names(said: str, file: Path) -> bool:
    """Return whether a text names a file, by its path or the end of it, with its folder.

    >>> _names("deltas/12: damaged", Path("/run/deltas/1"))
    False
    >>> _names("/run/spool/b/0/head is damaged", Path("/run/spool/a/0/head"))
    False
    >>> _names("the file 0/head. Restore it", Path("/run/spool/a/0/head"))
    True
    """
    parts = file.parts
    ends = (re.escape(str(Path(*parts[-count:]))) for count in range(2, len(parts) + 1))
    path = rf"(?<![\w./-])(file://)?({'|'.join(ends)})(?![\w/-]|\.\w)"
    return re.search(path, said) is not None


def _files(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = {path for pattern in patterns for path in root.glob(pattern)}
    return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _around(descriptor: int, byte: int, count: int = 2 * AROUND + 1) -> bytes:
    return os.pread(descriptor, count, max(0, byte - AROUND))


def _flip(descriptor: int, byte: int, mask: int) -> None:
    content = os.pread(descriptor, 1, byte)
    if content:
        os.pwrite(descriptor, bytes([content[0] ^ mask]), byte)
