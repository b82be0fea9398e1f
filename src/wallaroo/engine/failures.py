"""What happens when a user's function raises: the error that names step, place and event.

Where it runs: pure.  The policy is chosen when a stage is built; the per-event path only has a ``try``, which costs nothing until it fires.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from wallaroo.errors import UserCodeError
from wallaroo.steps import Step

EVENT_CHARS_MAX = 200  # of an event shown in an error
FRAME_BYTES_MAX = 32  # of a frame shown in hex

OnError = Callable[[Any, BaseException], None]


def shorten(event: Any) -> str:
    """Return a repr of at most EVENT_CHARS_MAX characters; never raises."""
    try:
        text = repr(event)
    except Exception as error:  # a user's __repr__ may do anything
        text = f"<{type(event).__name__} whose repr raised {type(error).__name__}>"
    if text.startswith("<") and " object at 0x" in text:
        text = _describe(event)
    return text if len(text) <= EVENT_CHARS_MAX else f"{text[:EVENT_CHARS_MAX]}… ({len(text)} characters)"


def _describe(event: Any) -> str:
    names = [*getattr(type(event), "__slots__", ()), *getattr(event, "__dict__", {})]
    fields = ", ".join(f"{name}={getattr(event, name, '?')!r}" for name in names)
    return f"{type(event).__name__}({fields})"


def show_frame(payload: bytes) -> str:
    """Return a frame's size and first bytes in hex."""
    head = bytes(payload[:FRAME_BYTES_MAX]).hex(" ")
    more = " …" if len(payload) > FRAME_BYTES_MAX else ""
    return f"frame of {len(payload)} bytes: {head}{more}"


def describe(step: Step, event: str, error: BaseException) -> UserCodeError:
    """Make the error for ``step``: where it was raised in the user's file, and the user's part of the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(step.function, "__code__", None)
    mine = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    place = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else step.place
    users = [frame for frame in frames if "/wallaroo/engine/" not in frame.filename]
    trace = "".join(traceback.format_list(users)) + "".join(traceback.format_exception_only(error))
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UserCodeError(step.step_name, place, event, text, trace)


def stop_on_error(step: Step) -> OnError:
    """The default policy: raise; the batch does not commit."""
    show = show_frame if step.kind == "decoder" else shorten

    def failed(event: Any, error: BaseException) -> None:
        raise describe(step, show(event), error) from error

    return failed
