"""What an error of user code says."""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.engine.failures.error_context import (
    blame_entries,
    describe,
    error_of_exit,
    shorten,
    show_frame,
)
from wallaroo.engine.failures.policies import Failures, stop_on_error
from wallaroo.errors import UserCodeError
from wallaroo.testing import run_local, run_state_step, run_step


class Quote:
    def __init__(self) -> None:
        self.symbol, self.price = "AAPL", 12.5


class Slotted:
    __slots__ = ("missing", "symbol")

    def __init__(self) -> None:
        self.symbol = "IBM"


class Grumpy:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class HoldsGrumpy:
    def __init__(self) -> None:
        self.grumpy = Grumpy()


@wallaroo.computation("divide")
def divide(number: int) -> float:
    return _by_zero(number)


def _by_zero(number: int) -> float:
    return number / 0  # here


@wallaroo.decoder(name="ascii")
def ascii_only(payload: bytes) -> str:
    return payload.decode("ascii")


def failed(step: Any, event: Any) -> UserCodeError:
    with pytest.raises((ArithmeticError, ValueError)) as raised:
        step.function(event)
    with pytest.raises(UserCodeError) as caught:
        stop_on_error(step)(event, raised.value)
    assert caught.value.__cause__ is raised.value
    return caught.value


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ("short", "'short'"),
        (b"\x00", r"b'\x00'"),
        ("x" * 300, "'" + "x" * 199 + "… (302 characters)"),
        (Quote(), "Quote(symbol='AAPL', price=12.5)"),
        (Slotted(), "Slotted(missing='?', symbol='IBM')"),
        (Grumpy(), "<Grumpy whose repr raised RuntimeError>"),
        (HoldsGrumpy(), "<HoldsGrumpy whose repr raised RuntimeError>"),
    ],
    ids=[
        "short",
        "bytes",
        "long",
        "attributes",
        "slots",
        "failing repr",
        "attribute with a failing repr",
    ],
)
def test_an_event_is_shown_in_one_line_whatever_it_is(event: Any, text: str) -> None:
    assert shorten(event) == text


def test_a_frame_is_shown_by_its_size_and_first_bytes() -> None:
    assert show_frame(b"\x01\xff") == "frame of 2 bytes: 01 ff"
    assert show_frame(b"") == "frame of 0 bytes: "
    assert show_frame(b"1") == "frame of 1 byte: 1"
    assert show_frame(b'{"a":\n "b"}') == r'frame of 11 bytes: {"a":\n "b"}'
    assert show_frame("ö".encode() * 150 + b"x") == f"frame of 301 bytes: {'ö' * 100}…"
    assert show_frame(b"x" + "ö".encode() * 150) == f"frame of 301 bytes: x{'ö' * 99}…"
    assert show_frame("ö".encode()[:1]) == "frame of 1 byte: c3"
    assert show_frame(bytes(100)) == f"frame of 100 bytes: {' '.join(['00'] * 32)} …"


def test_the_error_names_the_innermost_line_of_the_users_file() -> None:
    error = failed(divide, 7)

    lines = Path(__file__).read_text().split("\n")
    assert (
        error.place == f"{__file__}:{1 + [line.endswith('# here') for line in lines].index(True)}"
    )
    assert (error.step, error.event, error.cause) == (
        "divide",
        "7",
        "ZeroDivisionError: division by zero",
    )
    assert "in divide" in error.trace
    assert "in _by_zero" in error.trace
    assert "wallaroo/engine" not in error.trace


def test_its_text_says_what_where_and_what_now() -> None:
    text = str(describe(divide, "7", ValueError("no")))

    assert text == (
        f"step 'divide' failed at {divide.place}: ValueError: no\n"
        "  event: 7\n"
        "  The batch was not committed. Correct the function and run again."
    )


def test_an_exception_without_text_is_named_by_its_class() -> None:
    assert describe(divide, "7", KeyError()).cause == "KeyError"


def test_a_failing_decoder_shows_the_frame() -> None:
    assert failed(ascii_only, b"a\xff").event == "frame of 2 bytes: 61 ff"


def test_the_error_survives_pickling() -> None:
    error = failed(divide, 7)

    copy = pickle.loads(pickle.dumps(error))

    assert (str(copy), copy.trace) == (str(error), error.trace)


def stops_with(call: Callable[[], object]) -> UserCodeError:
    with pytest.raises(UserCodeError) as caught:
        call()
    return caught.value


def cancelled(event: Any) -> None:
    raise asyncio.CancelledError("asked to")


def exited(event: Any) -> None:
    try:
        sys.exit("enough")
    finally:
        event.append("cleaned up")


@pytest.mark.parametrize("policy", ["stop", "skip", "dead-letter"])
@pytest.mark.parametrize(
    ("function", "cause"),
    [
        (cancelled, "CancelledError: asked to"),
        (exited, "SystemExit: enough"),
    ],
)
def test_what_is_no_exception_stops_the_run_whatever_the_policy(
    policy: str, function: Any, cause: str
) -> None:
    step = wallaroo.computation("leave", on_error=policy)(function)
    failures = Failures("app", 0, lambda letter: pytest.fail(f"written: {letter}"))

    with pytest.raises(BaseException) as raised:  # either of the two
        function([])
    error = stops_with(lambda: failures.policy(step)([], raised.value, None))

    assert (error.step, error.event, error.cause) == ("leave", "[]", cause)
    assert error.place.startswith(f"{__file__}:")
    assert failures.counts == {}


@pytest.mark.parametrize("policy", ["stop", "skip", "dead-letter"])
def test_what_a_step_has_stored_and_cannot_read_stops_the_run_whatever_the_policy(
    policy: str,
) -> None:
    """A window reads its accumulator where it calls the user's functions."""
    step = wallaroo.computation("keep", on_error=policy)(str)
    failures = Failures("app", 0, lambda letter: pytest.fail(f"written: {letter}"))
    unreadable = stops_with(lambda: blame_entries(step, AttributeError("gone")))

    assert stops_with(lambda: failures.policy(step)([], unreadable, None)) is unreadable
    assert failures.counts == {}


@pytest.fixture
def python_takes_ctrl_c() -> Iterator[None]:
    """Python's own handler, also where this process was started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_takes_ctrl_c")
def test_a_ctrl_c_that_comes_upon_a_step_stays_a_ctrl_c() -> None:
    @wallaroo.computation("long", on_error="skip")
    def long(event: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            event.append("cleaned up")
            raise

    events: list[list[str]] = [[]]
    with pytest.raises(KeyboardInterrupt) as raised:
        run_step(long, events)
    assert events == [["cleaned up"]]
    error = error_of_exit(raised.value)  # in a worker, which has no Ctrl-C
    assert (error.step, error.event) == ("long", "['cleaned up']")
    assert error_of_exit(KeyboardInterrupt()).step == "(unknown)"


class Leaves:
    def __init__(self) -> None:
        sys.exit()


class LeavesWhenStored:
    def __getstate__(self) -> Any:
        sys.exit(4)


@pytest.mark.parametrize(
    ("state", "cause"), [(Leaves, "SystemExit"), (LeavesWhenStored, "SystemExit: 4")]
)
def test_a_state_class_that_calls_sys_exit_is_named_with_its_step_and_key(
    state: type[Any], cause: str
) -> None:
    step = wallaroo.state_computation("keep", state=state)(lambda event, own: event)

    error = stops_with(lambda: run_state_step(step, [("k", 1)]))

    assert (error.step, error.event, error.cause) == ("keep", "state of key 'k'", cause)


class LeavesWhenShown:
    def __repr__(self) -> str:
        sys.exit(5)


def test_not_even_the_event_that_is_shown_can_end_the_program() -> None:
    assert shorten(LeavesWhenShown()) == "<LeavesWhenShown whose repr raised SystemExit>"


async def is_wanted(event: object) -> bool:
    return False


@pytest.mark.parametrize("kind", ["filter", "branch"])
def test_a_predicate_that_returns_a_coroutine_fails(kind: str) -> None:
    """A coroutine is true, so all events would pass."""
    config = wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", wallaroo.decoder(bytes.decode))
    events = wallaroo.source("in", config)
    sink = wallaroo.StdoutSinkConfig()
    if kind == "filter":
        ends = [events.filter(lambda event: is_wanted(event)).to_sink(sink)]
    else:
        ends = [each.to_sink(sink) for each in events.branch(lambda event: is_wanted(event))]
    application = wallaroo.build_application("waits", *ends)
    with pytest.raises(UserCodeError, match="it returned a coroutine: it called an async"):
        run_local(application, {"in": [b"a"]})
