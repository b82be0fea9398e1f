"""A busy run behind a real server, and Chromium; skipped where there is no browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.dashboard.fakes import BusyRun, Ticking
from tests.unit.inspection.conftest import Book
from tests.unit.status_api.fakes import COUNTER
from wallaroo.engine.blocks import packing_of
from wallaroo.state.view import close_environments
from wallaroo.status_api.server import StatusServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


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


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One browser for all tests."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()
