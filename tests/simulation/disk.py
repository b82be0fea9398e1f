"""A disk that forgets what was not synced, under the product's own code.

Where it runs: the simulation's process.

The files are real ones, in memory (tmpfs): they are what the kernel's page cache holds.  Beside
them this module keeps what is *on disk*: of a file what was synced, of a folder the names that were
synced.  A killed process changes neither.  A power cut keeps what is on disk, of each file an
arbitrary part of what was written since (sectors of 512 bytes are not torn), and of each folder a
prefix of the names that were made, renamed and removed since.

A sync that fails drops the unsynced part as Linux does: some of it may have reached the disk, the
page cache still shows it, and the next sync of the same file succeeds without writing it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

SECTOR_BYTES = 512
WHOLE = 0.4  # of what was not synced: the share that reached the disk whole
TORN = 0.3  # and the share of which a part did


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written and not synced; without bytes: the file was cut, or grew, to ``offset``."""

    offset: int
    content: bytes | None


@dataclass(slots=True, eq=False)
class File:
    """What of a file is on disk, and what is not yet."""

    synced: bytearray = field(default_factory=bytearray)
    unsynced: list[Write] = field(default_factory=list)

    def sync(self) -> None:
        """Everything is on disk from here on."""
        for write in self.unsynced:
            apply(self.synced, write)
        self.unsynced.clear()

    def lose(self, chance: random.Random) -> None:
        """An arbitrary part of what was not synced is on disk, the rest never will be."""
        for write in self.unsynced:
            luck = chance.random()
            if luck < WHOLE:
                apply(self.synced, write)
            elif luck < WHOLE + TORN and write.content:
                apply(self.synced, torn(write, chance))
        self.unsynced.clear()


@dataclass(slots=True, eq=False)
class Folder:
    """Names as they are, as they are on disk, and the changes in between, in order."""

    names: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    unsynced: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def change(self, nodes: dict[str, File | Folder | None]) -> None:
        """Give names to nodes, or take them away (None); all at once."""
        self.unsynced.append(nodes)
        _rename(self.names, nodes)

    def sync(self) -> None:
        """All names are on disk from here on."""
        for nodes in self.unsynced:
            _rename(self.synced, nodes)
        self.unsynced.clear()

    def lose(self, chance: random.Random) -> None:
        """The first few changes reached the disk, the others did not; so for all that is below."""
        for nodes in self.unsynced[: chance.randint(0, len(self.unsynced))]:
            _rename(self.synced, nodes)
        self.unsynced.clear()
        self.names = dict(self.synced)
        for _, node in sorted(self.synced.items()):
            node.lose(chance)

    def restore(self, place: Path) -> None:
        """Make real files and folders of what is on disk."""
        for name, node in self.synced.items():
            if isinstance(node, Folder):
                (place / name).mkdir(mode=0o700)
                node.restore(place / name)
            else:
                (place / name).write_bytes(node.synced)


def apply(content: bytearray, write: Write) -> None:
    """Do to ``content`` what was written."""
    missing = write.offset - len(content)
    if missing > 0:
        content += bytes(missing)
    if write.content is None:
        del content[write.offset :]
    else:
        content[write.offset : write.offset + len(write.content)] = write.content


def torn(write: Write, chance: random.Random) -> Write:
    """Return the part of a write up to some sector's end."""
    assert write.content is not None
    first = -write.offset % SECTOR_BYTES
    ends = [0, *range(first, len(write.content), SECTOR_BYTES)]
    return Write(write.offset, write.content[: chance.choice(ends)])


def _rename(names: dict[str, File | Folder], nodes: dict[str, File | Folder | None]) -> None:
    for name, node in nodes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
