"""An S3 server for the tests of this folder, each with a place of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.connectors.files.s3.server import S3Server, environment_of, running_s3
from tests.forks import Forks

_places = itertools.count()
Ran = Callable[..., tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a server, the folder that holds its objects, and what clients need."""

    url: str
    objects: Path
    port: int
    environment_of: Callable[[int, Path], dict[str, str]] = environment_of

    def environment(self, cache: Path, port: int = 0) -> dict[str, str]:
        """Return the variables of a machine; ``port``: that of a proxy."""
        return self.environment_of(port or self.port, cache)


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


@pytest.fixture
def ran(tmp_path: Path, place: Place, child_of: Callable[[str], Forks]) -> Ran:
    """Run the program to its end, as ``started`` starts it; return exit code and output."""
    driver = child_of("tests.stores.stored_driver")

    def run(machine: str, *options: str, port: int = 0, **variables: str) -> tuple[int, str]:
        environment = place.environment(tmp_path / machine, port)
        return driver.run(tmp_path, place.url, *options, **environment, **variables)

    return run
