"""Parquet objects of an S3 store as an end, read with a client of a few lines.

Where it runs: the verifier.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow.parquet as pq

from tests.connectors.files.s3.client import S3Client
from tests.connectors.files.s3.server import S3Server
from tests.endpoints.interface import Disturbed, Output

BUCKET = "out"
PARTS = "windows/part-"


class S3Ends(Disturbed, Output):
    """One server with a bucket."""

    name = "S3 server"

    def __init__(self, server: S3Server):
        self._server = server
        self._client = S3Client(server.port)
        self._client.make_bucket(BUCKET)
        self._read: dict[str, list[bytes]] = {}  # objects never change
        self.arguments = ["--sink", "s3", "--port", str(server.port)]

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

    def lines(self) -> Iterator[bytes]:
        for name in sorted(self._client.names(BUCKET)):
            if name.startswith(PARTS):  # the server lists its own files of broken uploads, too
                yield from self._lines_of(name)

    def _lines_of(self, name: str) -> list[bytes]:
        if name not in self._read:
            table = pq.read_table(io.BytesIO(self._client.content(BUCKET, name)))
            self._read[name] = [line.encode() for line in table["line"].to_pylist()]
        return self._read[name]
