"""Files as ends: logs that a replayable source of the application's own reads, parts and folders
that a sink writes.

Where it runs: the verifier.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from tests.endpoints.interface import PARTITIONS, Input, Output
from tests.endpoints.oracles import key_of
from tests.endpoints.table_oracles import MARK


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


class FoldersOutput(Output):
    """Folders of rows and marks; of a folder that is marked, the files that come after the mark."""

    is_watched = True

    def __init__(self) -> None:
        self._known: dict[str, list[bytes]] = {}  # files never change

    @abstractmethod
    def _names(self) -> Iterable[str]:
        """Return the names of all files, without the sink's path."""

    @abstractmethod
    def _content(self, name: str) -> bytes:
        """Return a file."""

    def lines(self) -> Iterator[bytes]:
        marks = [name for name in self._names() if name.endswith(f"/{MARK}")]
        names = list(self._names())  # no file that a mark is to come after is missed
        for name in marks:
            folder = name.removesuffix(f"/{MARK}")
            yield f"{folder} {MARK}".encode()
        for name in names:
            folder, _, file = name.rpartition("/")
            if file.startswith("part-"):
                yield from (b"%s %s" % (folder.encode(), row) for row in self._rows(name))

    def _rows(self, name: str) -> list[bytes]:
        if name not in self._known:
            table = pq.read_table(io.BytesIO(self._content(name)))
            table = table.set_column(0, "at", table["at"].cast("timestamp[ms]").cast("int64"))
            rows = zip(*(table[name].to_pylist() for name in ("key", "number", "at")), strict=True)
            self._known[name] = [b"%d %d %d" % row for row in rows]
        return self._known[name]


class LocalFolders(FoldersOutput):
    """Folders on this machine's disk."""

    def __init__(self, folder: Path):
        super().__init__()
        self._folder = folder / "hours"
        self.arguments = ["--sink", "folders", "--folder", str(folder)]

    def _names(self) -> Iterable[str]:
        return [str(path.relative_to(self._folder)) for path in self._folder.rglob("*")]

    def _content(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()
