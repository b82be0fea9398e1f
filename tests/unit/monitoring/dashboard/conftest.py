"""A busy run behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.checkpoints.inspection.conftest import Book
from tests.unit.monitoring.dashboard.fakes import BusyRun, Ticking
from tests.unit.monitoring.status_api.fakes import COUNTER
from wallaroo.engine.blocks.packing import packing_of
from wallaroo.monitoring.status_api.server import StatusServer
from wallaroo.state.views.environments import close_environments


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the test a user's folder of its own."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[BusyRun]:
    """A run with ten minutes behind it, whose state holds a few words."""
    book = Book(tmp_path / "counts", 8, packing_of(None), steps=(COUNTER,))
    for times in (1, 2, 3):
        book.write({(COUNTER, word): {"word": word, "count": times} for word in ("the", "people")})
    book.write({(COUNTER, "<b>bold</b>"): {"word": "<b>bold</b>", "count": 1}})
    with Ticking(BusyRun(book.root)) as run:
        yield run
    book.close()
    close_environments()


@pytest.fixture
def server(busy: BusyRun) -> Iterator[StatusServer]:
    server = StatusServer(busy)
    server.start()
    yield server
    server.close()


@pytest.fixture
def address(server: StatusServer) -> str:
    return f"http://127.0.0.1:{server.address[1]}"


@pytest.fixture
def link(address: str, server: StatusServer) -> str:
    """What `wallaroo status --link` prints."""
    return f"{address}/?token={server.token}"
