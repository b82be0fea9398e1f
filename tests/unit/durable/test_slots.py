"""The file of three slots, whatever reached the disk of what was written since the last sync."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from wallaroo.durable.slots import FILE_BYTES, SlotFile, read_slots


class PowerCut:
    """Knows what of a file is on disk, and what was written since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.on_disk = bytes(FILE_BYTES)
        self.unsynced: list[tuple[int, bytes]] = []
        real = os.pwrite

        def pwrite(descriptor: int, content: bytes, offset: int) -> int:
            self.unsynced.append((offset, bytes(content)))
            return real(descriptor, content, offset)

        def fdatasync(descriptor: int) -> None:
            self.on_disk = self._with(range(len(self.unsynced)), ())
            self.unsynced.clear()

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "fdatasync", fdatasync)

    def outcomes(self) -> list[bytes]:
        """What a power cut may leave: each write whole, torn, or not there."""
        fates = product(("whole", "torn", "lost"), repeat=len(self.unsynced))
        return [
            self._with(
                [number for number, fate in enumerate(each) if fate == "whole"],
                [number for number, fate in enumerate(each) if fate == "torn"],
            )
            for each in fates
        ]

    def _with(self, whole: object, torn: object) -> bytes:
        content = bytearray(self.on_disk)
        for number, (offset, written) in enumerate(self.unsynced):
            if number in whole:  # type: ignore[operator]
                content[offset : offset + len(written)] = written
            elif number in torn:  # type: ignore[operator]
                half = written[: len(written) // 2]
                content[offset : offset + len(half)] = half
        return bytes(content)


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> PowerCut:
    return PowerCut(monkeypatch)


def left_by(outcomes: list[bytes], folder: Path) -> set[bytes | None]:
    found = set()
    for content in outcomes:
        (folder / "after").write_bytes(content)
        found.add(read_slots(folder / "after"))
    return found


@pytest.mark.parametrize("writes", range(5))
def test_a_power_cut_leaves_what_was_synced_or_something_newer(
    tmp_path: Path, power: PowerCut, writes: int
) -> None:
    file = SlotFile(tmp_path / "file")
    for number in range(writes):
        file.write(b"before %d" % number)
    file.write(b"synced")
    file.sync()
    for number in range(writes):
        file.write(b"after %d" % number)
    allowed = {b"synced", *(b"after %d" % number for number in range(writes))}
    assert left_by(power.outcomes(), tmp_path) <= allowed


@pytest.mark.parametrize("writes", range(4))
def test_the_next_process_keeps_what_was_synced_before_it(
    tmp_path: Path, power: PowerCut, writes: int
) -> None:
    """Whether the newest slot was synced nothing says."""
    file = SlotFile(tmp_path / "file")
    file.write(b"synced")
    file.sync()
    for _ in range(writes):
        file.write(b"killed before a sync")
    file.close()
    again = SlotFile(tmp_path / "file", is_durable=True)
    for _ in range(3):
        again.write(b"later")
    assert None not in left_by(power.outcomes(), tmp_path)


def test_a_sync_after_one_that_failed_proves_nothing(
    tmp_path: Path, power: PowerCut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system dropped what it could not write, and says yes the next time."""
    file = SlotFile(tmp_path / "file")
    file.write(b"synced")
    file.sync()
    file.write(b"dropped")

    def fail(descriptor: int) -> None:
        power.unsynced.clear()
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    file.sync()
    file.write(b"later")
    file.write(b"latest")
    assert None not in left_by(power.outcomes(), tmp_path)


def test_the_newest_whole_slot_counts(tmp_path: Path) -> None:
    file = SlotFile(tmp_path / "file")
    for number in range(10):
        file.write(b"%d" % number)
        assert read_slots(tmp_path / "file") == b"%d" % number
        if number % 3 == 0:
            file.sync()
    file.close()
    assert SlotFile(tmp_path / "file").found == b"9"
