"""The loop that runs a run's batches: its end, its errors, and the wait for its last batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from wallaroo.errors import InternalError, PeerError
from wallaroo.runtime.batch.admission import Ends
from wallaroo.runtime.batch.batch_loop import BatchLoop

FOREVER_S = 60.0


class ListedTrigger:
    """In place of a ``Trigger``: some batches, then none."""

    def __init__(self, *ends: str):
        self._ends = list(ends)
        self.has_ended = threading.Event()

    def next(self, batches: Any) -> Any:
        if self._ends and not self.has_ended.is_set():
            return self._ends.pop(0)
        return None

    def end(self) -> None:
        self.has_ended.set()


def loop_of(run: Callable[[Ends], object], *ends: str) -> BatchLoop:
    """Return a loop over batches with these ends."""
    trigger: Any = ListedTrigger(*ends)
    return BatchLoop(trigger, MagicMock(), run)


def test_a_loop_runs_batches_in_order_until_there_are_none() -> None:
    """Its thread ends with the trigger, and nothing has failed."""
    done: list[Any] = []
    loop = loop_of(done.append, "first", "second")

    loop.start("loop")
    assert loop.join(FOREVER_S)

    loop.poll()
    assert done == ["first", "second"]


def test_a_host_may_ask_for_each_batch() -> None:
    """A step reports whether there was a batch."""
    done: list[Any] = []
    loop = loop_of(done.append, "only")
    assert loop.step()
    assert not loop.step()
    assert done == ["only"]


@pytest.mark.parametrize(
    ("failure", "expected", "words"),
    [
        (PeerError("the table has gone"), PeerError, "the table has gone"),
        (OSError(28, "No space left on device"), PeerError, "Free disk space"),
        (KeyError("x"), InternalError, "does not expect: KeyError: 'x'"),
    ],
)
def test_the_first_error_ends_the_loop_and_is_raised_by_each_poll(
    failure: Exception, expected: type[Exception], words: str
) -> None:
    """No batch runs after the one that failed."""
    done: list[Any] = []

    def run(ends: Any) -> None:
        done.append(ends)
        raise failure

    loop = loop_of(run, "first", "second")
    loop.start("loop")
    assert loop.join(FOREVER_S)

    for _ in range(2):
        with pytest.raises(expected, match=words):
            loop.poll()
    assert done == ["first"]


def test_a_step_raises_the_error_itself() -> None:
    """A host that asks for batches has to see the error, so that it asks for no other one."""
    loop = loop_of(MagicMock(side_effect=KeyError("x")), "first")
    with pytest.raises(KeyError):
        loop.step()
    with pytest.raises(InternalError):
        loop.poll()


def test_an_error_from_outside_is_raised_too() -> None:
    """What keeps a host from asking for batches ends the run."""
    loop = loop_of(MagicMock())
    loop.fail(PeerError("refused"))
    with pytest.raises(PeerError, match="refused"):
        loop.poll()


def test_finishing_waits_for_the_batch_under_way_and_begins_no_other() -> None:
    """It reports whether that batch ended in time."""
    has_begun = threading.Event()
    may_end = threading.Event()
    done: list[Any] = []

    def run(ends: Any) -> None:
        has_begun.set()
        assert may_end.wait(FOREVER_S)
        done.append(ends)

    loop = loop_of(run, "first", "second")
    loop.start("loop")
    assert has_begun.wait(FOREVER_S)

    assert not loop.finish(0.05)
    may_end.set()
    assert loop.finish(FOREVER_S)
    assert done == ["first"]


def test_an_error_of_the_last_batch_is_raised_by_finishing() -> None:
    """A run does not end well if its last batch failed."""
    loop = loop_of(MagicMock(side_effect=PeerError("late")), "only")
    loop.start("loop")
    assert loop.join(FOREVER_S)
    with pytest.raises(PeerError, match="late"):
        loop.finish(FOREVER_S)


def test_a_loop_without_a_thread_has_nothing_to_wait_for() -> None:
    """A run that failed while it started is closed all the same."""
    assert loop_of(MagicMock()).finish(0.0)
