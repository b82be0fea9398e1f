"""An S3 server for the tests of this folder, each with a place of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.connectors.files.s3.server import S3Server, environment_of, running_s3

_places = itertools.count()


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the server, the folder that holds its objects, and what clients need."""

    url: str
    objects: Path
    port: int

    def environment(self, cache: Path, port: int = 0) -> dict[str, str]:
        """Return the variables of a machine; ``port``: that of a proxy."""
        return environment_of(port or self.port, cache)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        (server.folder / "data" / "bucket").mkdir(parents=True)
        yield server


@pytest.fixture
def place(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place of a test's own; this process is a machine with the cache ``tmp_path/cache``."""
    name = f"app{next(_places)}"
    place = Place(f"s3://bucket/{name}", s3_server.folder / "data/bucket" / name, s3_server.port)
    for variable, value in place.environment(tmp_path / "cache").items():
        monkeypatch.setenv(variable, value)
    return place
