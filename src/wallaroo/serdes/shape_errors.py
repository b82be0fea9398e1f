"""What is said of a value that does not have the shape that was asked for.

Where it runs: everywhere; pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Read = Callable[[Any], Any]  # makes a value of some type of a plain one; raises ShapeError
VALUE_CHARS_MAX = 80  # of a value in an error


class ShapeError(ValueError):
    """A value does not have the shape that was asked for; says where in it."""

    def __init__(self, text: str, path: str = ""):
        super().__init__(text, path)

    def below(self, part: str) -> ShapeError:
        """The same error, seen from the value around it."""
        text, path = self.args
        return ShapeError(text, f"{part}{path}")

    def __str__(self) -> str:
        text, path = self.args
        return f"{path.removeprefix('.')}: {text}" if path else str(text)


def shown(value: Any) -> str:
    """Return a value for an error, with its type."""
    text = repr(value)
    if len(text) > VALUE_CHARS_MAX:
        text = f"{text[:VALUE_CHARS_MAX]}..."
    return f"{text} ({type(value).__name__})"


def expected(what: str, value: Any) -> ShapeError:
    """Make the error for a value that is not what was expected."""
    return ShapeError(f"expected {what}, got {shown(value)}")
