"""Errors of values that do not have the shape of their type."""

from __future__ import annotations

import contextlib
import re
from typing import Any

VALUE_CHARS_MAX = 80  # per value in an error
# msgspec's errors: "Expected `int`, got `str` - at `$.items[1].price`"
PLACE = re.compile(r"(?P<text>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
PART = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<number>\d+)\]")
EXPECTED = re.compile(r"(Expected .*), got .*", re.DOTALL)


class ShapeError(ValueError):
    """A value that does not have its type's shape.

    The text names the place inside of it.
    """

    def __init__(self, text: str, path: str = ""):
        super().__init__(text, path)

    def __str__(self) -> str:
        text, path = self.args
        return f"{path.removeprefix('.')}: {text}" if path else str(text)


def shown(value: Any) -> str:
    """Return a value with its type, for an error."""
    text = repr(value)
    if len(text) > VALUE_CHARS_MAX:
        text = f"{text[:VALUE_CHARS_MAX]}..."
    return f"{text} ({type(value).__name__})"


def shape_error(words: str, value: Any) -> ShapeError:
    """Return the error for a value as a whole that msgspec refuses in these words.

    >>> str(shape_error("Expected `int`, got `str` - at `$.items[1]`", {"items": [1, "x"]}))
    "items[1]: expected int, got 'x' (str)"
    >>> str(shape_error("Object missing required field `id`", {}))
    "object missing required field 'id', got nothing"
    """
    place = PLACE.fullmatch(words)
    assert place is not None  # each part of the expression may be empty
    text = place["text"].replace("`", "" if place["text"].startswith("Expected") else "'")
    path = place["path"] or ""
    if place["key"]:
        return ShapeError(_uncapitalized(text), f"{path}: a key" if path else "a key")
    with contextlib.suppress(LookupError, TypeError):  # a place without a name: "[...]"
        part = _part_of(value, path)
        if expected := EXPECTED.fullmatch(text):
            text = f"{expected[1]}, got {shown(part)}"
        elif text.startswith("Object missing"):
            text = f"{text}, got {', '.join(map(repr, part)) or 'nothing'}"
        elif "'" not in text:  # a quoted value in the text is this one already
            text = f"{text}, got {shown(part)}"
    return ShapeError(_uncapitalized(text), path)


def _part_of(value: Any, path: str) -> Any:
    if "[...]" in path:
        raise LookupError(path)
    for part in PART.finditer(path):
        value = value[part["name"] or int(part["number"])]
    return value


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:]
