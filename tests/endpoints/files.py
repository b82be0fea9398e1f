"""Files as ends: logs that a replayable source of the application's own reads, parts that a sink
writes.

Where it runs: the verifier.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.endpoints.interface import PARTITIONS, Input, Output
from tests.endpoints.oracles import key_of


class LogInput(Input):
    """Appends events to a file per partition; ``source`` reads them."""

    def __init__(self, folder: Path, source: str = "logs"):
        self._folder = folder
        self.arguments = ["--source", source, "--folder", str(folder)]
        for number in range(PARTITIONS):
            (folder / f"{number}.log").touch()

    def put(self, payloads: list[bytes]) -> None:
        for number in range(PARTITIONS):
            own = [p for p in payloads if key_of(p) % PARTITIONS == number]
            with (self._folder / f"{number}.log").open("ab") as file:
                file.write(b"".join(own))


class FileOutput(Output):
    """The parts of a file sink."""

    def __init__(self, folder: Path):
        self._folder = folder
        self.arguments = ["--sink", "file", "--folder", str(folder)]

    def lines(self) -> Iterator[bytes]:
        for part in sorted((self._folder / "files").glob("part-*")):
            yield from part.read_bytes().splitlines()
