"""Runs to ask, each in a folder of its own; the user's registry is the test's own, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.monitoring.status_api.fakes import (
    COUNTER,
    RUNNING,
    FakeRun,
    word_count,
)
from wallaroo.engine.blocks.packing import packing_of
from wallaroo.monitoring.metrics.status import RunStatus
from wallaroo.monitoring.status_api.server import StatusServer
from wallaroo.state.views.environments import close_environments

Start = Callable[..., StatusServer]


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a user's folder of its own."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return runtime / "wallaroo"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    """A checkpoint in use: three words counted, one of them twice."""
    book = Book(tmp_path / "counts", 8, packing_of(None), steps=(COUNTER,))
    yield book
    book.close()
    close_environments()


@pytest.fixture
def start(book: Book) -> Iterator[Start]:
    """Start a server for a run of Word Count on that checkpoint."""
    servers = []

    def run(status: RunStatus = RUNNING, root: Path | None = None, **more: Any) -> StatusServer:
        server = StatusServer(FakeRun(word_count(), root or book.root, status), **more)
        servers.append(server)
        server.start()
        return server

    yield run
    for server in servers:
        server.close()
