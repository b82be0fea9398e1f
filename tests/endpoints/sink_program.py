"""A sink program that keeps on disk what it voted for, and so survives being killed.

    python -m tests.endpoints.sink_program FOLDER PORT

It shares no code with the product; what it keeps is read by the verifier.

Where it runs: a process of its own.

The invariant: what a vote of yes promises, and what a commit ends, is in the files before the
answer leaves: first the output, then the file that says how much of it counts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.unit.compat.sink.program import Disk, Program

COOKIE = b"cookie of the ends"


class DurableProgram(Program):
    """Keeps each instance's output in a file, and how much of it counts in another one."""

    def __init__(self, folder: Path, port: int):
        self._folder = folder
        self._written: dict[bytes, int] = {}
        super().__init__(cookie=COOKIE, port=port, kept=_read(folder))

    def save(self, instance: bytes, disk: Disk) -> None:
        name = self._folder / f"{instance.hex()}.output"
        written = min(self._written.get(instance, 0), disk.committed)
        with name.open("r+b" if name.exists() else "w+b") as file:
            file.seek(written)
            file.write(disk.output[written:])
            file.truncate()
        self._written[instance] = len(disk.output)
        voted = [[key.hex(), *value] for key, value in disk.voted.items()]
        temporary = name.with_suffix(".new")
        temporary.write_text(json.dumps({"committed": disk.committed, "voted": voted}))
        os.replace(temporary, name.with_suffix(".json"))

    def fail(self, what: str) -> None:
        with (self._folder / "failures").open("a") as file:
            file.write(f"{what}\n")


def _read(folder: Path) -> dict[bytes, Disk]:
    kept = {}
    for state in folder.glob("*.json"):
        content = json.loads(state.read_text())
        voted = {bytes.fromhex(key): (yes, start, end) for key, yes, start, end in content["voted"]}
        output = bytearray(state.with_suffix(".output").read_bytes())
        kept[bytes.fromhex(state.stem)] = Disk(output, content["committed"], voted)
    return kept


def committed(folder: Path) -> list[bytes]:
    """Return what a reader may trust, by instance."""
    found = []
    for state in sorted(folder.glob("*.json")):
        length = json.loads(state.read_text())["committed"]
        with state.with_suffix(".output").open("rb") as file:
            found.append(file.read(length))
    return found


def failures(folder: Path) -> str:
    """Return what the application did against the protocol."""
    file = folder / "failures"
    return file.read_text() if file.exists() else ""


def main(folder: Path, port: int) -> None:
    """Serve until the process ends."""
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    DurableProgram(folder, port)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
