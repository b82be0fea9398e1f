"""Sources whose events come by themselves: stored in order, with back-pressure, from where they
stopped.
"""

from __future__ import annotations

import errno
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sources.own import copying, counted, failing, pushing, ticked
from wallaroo.errors import UserCodeError, WallarooParameterError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources import IteratorSource, Push, PushSource
from wallaroo.sources.feed import FrameRun as Part
from wallaroo.sources.feeds.inbox import (
    EVENTS_MAX,
    Inbox,
    InboxFeed,
    Pushed,
)
from wallaroo.steps.kinds import Decoder
from wallaroo.testing import run_local

Eventually = Callable[..., None]


@pytest.fixture
def finished(tmp_path: Path) -> Callable[[Any], Run]:
    def run_to_its_end(source: Any) -> Run:
        options = RunOptions(checkpoint=tmp_path / "state", status_address=None)
        run = Run(copying(source, tmp_path / "out.txt"), options, InProcessHost(2))
        run.begin()
        assert run.wait(400)
        return run

    return run_to_its_end


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (IteratorSource("numbers", counted), [f"number {n}" for n in range(1, 31)]),
        (IteratorSource("ticks", ticked), [f"tick {n}" for n in range(10, 310, 10)]),
        (PushSource("pushes", pushing), [f"pushed {n}" for n in range(30)]),
    ],
    ids=["iterator", "async", "push"],
)
def test_a_source_is_read_to_its_end(
    source: Any, expected: list[str], finished: Callable[[Any], Run], tmp_path: Path
) -> None:
    run = finished(source)
    assert (run.exception, run.status().state) == (None, "finished")
    assert (tmp_path / "out.txt").read_text().splitlines() == expected


def test_an_iterator_that_raises_ends_the_run_with_its_line(
    finished: Callable[[Any], Run], tmp_path: Path
) -> None:
    run = finished(IteratorSource("numbers", failing))
    assert isinstance(run.exception, UserCodeError)
    assert "the feed broke" in str(run.exception)
    assert "own.py" in str(run.exception)


def _parts(feed: Any) -> Iterator[Part]:
    while (part := feed.next_run()) is not None:
        if part.events:
            yield part


@pytest.mark.parametrize(
    ("open_events", "expected"),
    [([1, 2], "[1, 2], not a function"), (lambda: iter(()), "cannot be called with one argument")],
    ids=["a list", "a function without an argument"],
)
def test_events_that_no_function_returns_are_refused(open_events: Any, expected: str) -> None:
    with pytest.raises(WallarooParameterError) as caught:
        IteratorSource("numbers", open_events)
    assert expected in str(caught.value)
    assert "IteratorSource(name='numbers')" in str(caught.value)
    assert "def open_events(after)" in str(caught.value)


@pytest.mark.parametrize("open_events", [counted, ticked])
def test_an_iterator_goes_on_after_what_was_stored(open_events: Any) -> None:
    source = pickle.loads(pickle.dumps(IteratorSource("numbers", open_events)))
    whole = b"".join(part.frames for part in _parts(source.open_feed(b"")))
    some = 10 if open_events is counted else 100
    rest = b"".join(part.frames for part in _parts(source.open_feed(pickle.dumps(some))))
    assert whole.endswith(rest)
    assert len(rest) < len(whole)


def test_who_pushes_waits_while_the_inbox_is_full_and_learns_when_events_are_stored(
    eventually: Eventually,
) -> None:
    pushed: list[int] = []
    stored: list[int] = []

    def subscribe(push: Push) -> None:
        for number in range(3 * EVENTS_MAX):  # more than fit, and an end for the thread
            push(number, lambda number=number: stored.append(number))
            pushed.append(number)

    feed = PushSource("pushes", subscribe).open_feed(b"")
    first = feed.next_run()
    assert first is not None
    eventually(lambda: len(pushed) >= EVENTS_MAX + first.events, "the inbox is full")
    assert len(pushed) <= EVENTS_MAX + first.events
    assert stored == []
    assert first.stored is not None
    first.stored()
    assert stored == list(range(first.events))


def test_what_comes_after_the_end_is_dropped() -> None:
    inbox = Inbox()
    inbox.put(Pushed(b"1", 1, None))
    inbox.end()
    for _ in range(EVENTS_MAX + 1):
        inbox.put(Pushed(b"2", 2, None))
    assert inbox.take(0) == [Pushed(b"1", 1, None)]
    assert inbox.take(0) is None


def test_a_feed_without_events_comes_back_soon() -> None:
    blocked = threading.Event()
    feed = InboxFeed("quiet", lambda inbox, position: blocked.wait() and None, b"")
    part = feed.next_run()
    blocked.set()
    assert part is not None
    assert part.events == 0


def _returns(inbox: Inbox) -> None:
    """Stop without an end, as a server does whose accept fails."""


def _raises(inbox: Inbox) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("stop", [_returns, _raises])
def test_work_that_stops_without_an_end_is_named_and_continues_after_what_is_stored(
    stop: Callable[[Inbox], None], caplog: pytest.LogCaptureFixture
) -> None:
    positions: list[Any] = []

    def work(inbox: Inbox, position: Any) -> None:
        positions.append(position)
        if len(positions) > 2:
            inbox.end()
            return
        inbox.put(Pushed(b"event", len(positions), None))
        stop(inbox)

    feed = InboxFeed("quiet", work, b"")
    problems = set()
    events = 0
    while (part := feed.next_run()) is not None:
        events += part.events
        problems.add(part.problem)
    assert positions == [None, 1, 2]
    assert events == 2
    assert any("its feed stopped" in problem and "started again" in problem for problem in problems)
    assert "Source quiet: its feed stopped" in caplog.text


def _text(payload: bytes) -> str:
    return payload.decode()


def test_with_a_decoder_events_are_payloads(finished: Callable[[Any], Run], tmp_path: Path) -> None:
    run = finished(PushSource("pushes", _push_bytes, Decoder(_text, "text")))
    assert run.exception is None
    assert (tmp_path / "out.txt").read_text() == "payload\n"


def test_an_event_that_is_no_payload_ends_a_run_with_a_decoder(
    finished: Callable[[Any], Run],
) -> None:
    run = finished(PushSource("pushes", pushing, Decoder(_text, "text")))
    assert "takes payloads (bytes), got str" in str(run.exception)


def _push_bytes(push: Push) -> None:
    push(b"payload")
    push.end()


def test_run_local_gives_values(tmp_path: Path) -> None:
    application = copying(IteratorSource("numbers", counted), tmp_path / "out.txt")
    assert run_local(application, {"numbers": ["a"]}).outputs == [b"a\n"]
