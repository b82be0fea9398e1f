"""Sinks whose calls cannot be ended from outside: a hang is named, holds up no end of a run, and
loses nothing.
"""

from __future__ import annotations

import itertools
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.file.files import staged
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.files import committer as files
from wallaroo.sinks import (
    FunctionSinkConfig,
    HTTPSinkConfig,
    RollingSinkConfig,
    SinkCommitter,
    UDPSinkConfig,
)

Eventually = Callable[..., None]
DRAIN_S = 400.0
AGAIN = re.compile(r"timed out\. \(read timeout=0\.2\); retry ([2-9]|\d{2})")


class Hang:
    """A function whose first call does not return before it is let go."""

    def __init__(self, then: Callable[..., Any]):
        self.let_go = threading.Event()
        self._then = then
        self._calls = itertools.count()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if not next(self._calls):
            self.let_go.wait()
        return self._then(*arguments, **options)


class Case:
    """A sink that hangs, and what has arrived."""

    def __init__(self, config: Any, hang: Hang, arrived: Callable[[], bytes]):
        self.config = config
        self.hang = hang
        self.arrived = arrived


def function_that_never_returns(_: Path, __: pytest.MonkeyPatch) -> Case:
    taken: list[bytes] = []
    hang = Hang(lambda outputs: taken.extend(outputs))
    return Case(FunctionSinkConfig(hang, name="alerts"), hang, lambda: b"".join(taken[:1]))


def file_system_that_hangs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    out = folder / "out"
    hang = Hang(files.make_folder)  # where a part is to appear
    monkeypatch.setattr(files, "make_folder", hang)
    config = RollingSinkConfig(str(out), roll_s=0.01, compress=False)

    def arrived() -> bytes:
        return b"".join(path.read_bytes() for path in out.glob("part-*")).strip()

    return Case(config, hang, arrived)


def name_server_that_hangs(_: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(DRAIN_S)
    hang = Hang(socket.getaddrinfo)
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    return Case(
        UDPSinkConfig("127.0.0.1", receiver.getsockname()[1]), hang, lambda: receiver.recv(100)
    )


CASES = [function_that_never_returns, file_system_that_hangs, name_server_that_hangs]


def with_output(case: Case, folder: Path) -> SinkCommitter:
    """Return a committer that has a batch to send."""
    committer: SinkCommitter = case.config.committer("s", folder / "staging", False)
    committer.recover(history_to(-1), [])
    committer.commit(commit_of(0), staged(case.config, folder / "staging", 0, [b"m"]))
    return committer


def with_a_hang(case: Case, folder: Path, eventually: Eventually) -> SinkCommitter:
    """Return a committer whose batch hangs, which its status names."""
    committer = with_output(case, folder)
    eventually(lambda: is_named(committer), "the status names it")
    assert committer.status().pending_bytes > 0
    return committer


def is_named(committer: SinkCommitter) -> bool:
    committer.poll()
    return "(no answer for " in committer.status().waiting_for


@pytest.mark.parametrize("make", CASES)
def test_what_hangs_is_named_and_its_output_leaves_when_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, make: Any
) -> None:
    case: Case = make(tmp_path, monkeypatch)
    committer = with_a_hang(case, tmp_path, eventually)

    case.hang.let_go.set()
    eventually(lambda: committer.status().pending_bytes == 0, "the output has left")
    committer.close(DRAIN_S)
    assert case.arrived() == b"m"


@pytest.mark.parametrize("make", CASES)
def test_a_run_ends_although_its_sink_hangs_and_the_next_one_sends_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually, make: Any
) -> None:
    case: Case = make(tmp_path, monkeypatch)
    ended = with_a_hang(case, tmp_path, eventually)
    ended.close(0)
    assert ended.status().pending_bytes > 0

    again = case.config.committer("s", tmp_path / "staging", False)
    again.recover(history_to(0), [])
    again.close(DRAIN_S)
    assert case.arrived() == b"m"
    case.hang.let_go.set()


def test_an_http_server_that_accepts_and_never_answers_is_given_up_and_named(
    tmp_path: Path, eventually: Eventually
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        case = Case(HTTPSinkConfig(url, timeout_s=0.2, backoff_s=0.01), Hang(list), bytes)
        committer = with_output(case, tmp_path)
        eventually(
            lambda: AGAIN.search(committer.status().waiting_for),
            "it is tried again",
        )
        committer.close(0)
