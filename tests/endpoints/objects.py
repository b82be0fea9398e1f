"""Parquet objects of an S3 store as an end, read with a client of a few lines.

Where it runs: the verifier.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import pyarrow.parquet as pq

from tests.connectors.files.s3.client import S3Client
from tests.connectors.files.s3.server import S3Server
from tests.endpoints.files import FoldersOutput
from tests.endpoints.interface import Disturbed, Output

BUCKET = "out"
PARTS = "windows/part-"
HOURS = "hours/"


class S3Ends(Disturbed):
    """One server."""

    name = "S3 server"

    def __init__(self, server: S3Server):
        self._server = server

    def pids(self) -> list[int]:
        assert self._server.process is not None
        return [self._server.process.pid]

    def start(self) -> None:
        self._server.start()

    def stop(self, *, is_killed: bool) -> None:
        if is_killed:
            self._server.kill()
        else:
            self._server.stop()


class S3Output(Output):
    """The objects of a sink without folders."""

    def __init__(self, server: S3Server):
        self._client = S3Client(server.port)
        self._client.make_bucket(BUCKET)
        self._read: dict[str, list[bytes]] = {}  # objects never change
        self.arguments = ["--sink", "s3", "--port", str(server.port)]

    def lines(self) -> Iterator[bytes]:
        for name in sorted(self._client.names(BUCKET)):
            if name.startswith(PARTS):  # the server lists its own files of broken uploads, too
                yield from self._lines_of(name)

    def _lines_of(self, name: str) -> list[bytes]:
        if name not in self._read:
            table = pq.read_table(io.BytesIO(self._client.content(BUCKET, name)))
            self._read[name] = [line.encode() for line in table["line"].to_pylist()]
        return self._read[name]


class S3Folders(FoldersOutput):
    """Folders in a bucket."""

    def __init__(self, server: S3Server):
        super().__init__()
        self._client = S3Client(server.port)
        self._client.make_bucket(BUCKET)
        self.arguments = ["--sink", "s3 folders", "--port", str(server.port)]

    def _names(self) -> Iterable[str]:
        names = self._client.names(BUCKET)
        return [name.removeprefix(HOURS) for name in names if name.startswith(HOURS)]

    def _content(self, name: str) -> bytes:
        return self._client.content(BUCKET, HOURS + name)
