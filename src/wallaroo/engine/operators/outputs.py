"""Outputs of functions: lists, and values that a sink can write.

Where it runs: pure (in workers), off the per-event path: only for outputs that are not lists or
bytes.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, NoReturn


def as_list(outputs: Any) -> list[Any]:
    """Return None, tuples, sets and generators as a list; raise TypeError for a single value."""
    if outputs is None:
        return []
    if isinstance(outputs, (str, bytes, bytearray, dict)) or not hasattr(outputs, "__iter__"):
        raise TypeError(f"a multi computation must return a list, not {type(outputs).__name__}")
    return list(outputs)


def as_bytes(output: Any) -> bytes:
    """Return an encoder's output as bytes.  Raises TypeError for anything but bytes or str."""
    if isinstance(output, str):
        return output.encode()
    if isinstance(output, (bytes, bytearray, memoryview)):
        return bytes(output)
    raise TypeError(f"an encoder must return bytes or str, not {type(output).__name__}")


def truth_of(answer: object) -> bool:
    """Return whether a predicate's answer is true.  Raises TypeError for a coroutine."""
    if type(answer) is CoroutineType:
        _refuse(answer, "returned")
    return bool(answer)


def _refuse(coroutine: Coroutine[Any, Any, Any], verb: str) -> NoReturn:
    coroutine.close()  # otherwise Python warns about it as well
    raise TypeError(
        f"it {verb} a coroutine: it called an async function, and a step cannot await; call a "
        f"synchronous function instead"
    )


def as_text(event: Any) -> bytes | str:
    """Return what a sink without an encoder writes.

    Bytes and str are written as they are, anything else as its ``str()``.  Raises TypeError for an
    object whose text is only its address.
    """
    if isinstance(event, (bytes, str)):
        return event
    if isinstance(event, Coroutine):
        _refuse(event, "emitted")
    text = str(event)
    if text.startswith("<") and text.endswith(">") and " at 0x" in text:
        raise TypeError(
            f"it emitted a {type(event).__name__}, which has no text, to a sink without an "
            f"encoder; give the sink an encoder, or return bytes or str"
        )
    return text
