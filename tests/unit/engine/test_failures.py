"""What an error of user code tells."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.engine.describing import describe, shorten, show_frame
from wallaroo.engine.failures import stop_on_error
from wallaroo.errors import UserCodeError


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
    ids=["short", "bytes", "long", "attributes", "slots", "failing repr", "attribute with a failing repr"],
)
def test_an_event_is_shown_in_one_line_whatever_it_is(event: Any, text: str) -> None:
    assert shorten(event) == text


def test_a_frame_is_shown_by_its_size_and_first_bytes() -> None:
    assert show_frame(b"\x01\xff") == "frame of 2 bytes: 01 ff"
    assert show_frame(b"") == "frame of 0 bytes: "
    assert show_frame(bytes(100)) == f"frame of 100 bytes: {' '.join(['00'] * 32)} …"


def test_the_error_names_the_innermost_line_of_the_users_file() -> None:
    error = failed(divide, 7)

    lines = Path(__file__).read_text().split("\n")
    assert error.place == f"{__file__}:{1 + next(number for number, line in enumerate(lines) if line.endswith('# here'))}"
    assert (error.step, error.event, error.cause) == ("divide", "7", "ZeroDivisionError: division by zero")
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
