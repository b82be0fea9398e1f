"""Error texts: step, place, shortened event and traceback of a user's failure.

Where it runs: pure.
"""

from __future__ import annotations

import traceback
from typing import Any, NoReturn

from wallaroo.errors import UserCodeError
from wallaroo.steps.kinds import Step
from wallaroo.user_code.user_frames import user_frames

EVENT_CHARS_MAX = 200  # limit for an event shown in an error
FRAME_BYTES_MAX = 32  # limit for a frame shown in hex


def shorten(event: Any) -> str:
    """Return a repr of at most EVENT_CHARS_MAX characters; never raises."""
    try:
        text = repr(event)
        if text.startswith("<") and " object at 0x" in text:
            text = _describe(event)
    except (Exception, SystemExit) as error:  # a user's __repr__ may do anything
        text = f"<{type(event).__name__} whose repr raised {type(error).__name__}>"
    return (
        text
        if len(text) <= EVENT_CHARS_MAX
        else f"{text[:EVENT_CHARS_MAX]}… ({len(text)} characters)"
    )


def _describe(event: Any) -> str:
    names = [*getattr(type(event), "__slots__", ()), *getattr(event, "__dict__", {})]
    fields = ", ".join(f"{name}={getattr(event, name, '?')!r}" for name in names)
    return f"{type(event).__name__}({fields})"


def show_frame(payload: bytes) -> str:
    """Return a frame's size and first bytes in hex."""
    head = bytes(payload[:FRAME_BYTES_MAX]).hex(" ")
    more = " …" if len(payload) > FRAME_BYTES_MAX else ""
    return f"frame of {len(payload)} bytes: {head}{more}"


def blame(step: Step, event: str, error: BaseException) -> NoReturn:
    """Stop the run: raise the UserCodeError for ``step``.

    It is raised also if the step's function called sys.exit; a Ctrl-C is raised again as it is.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
    raise describe(step, event, error) from error


def describe(step: Step, event: str, error: BaseException) -> UserCodeError:
    """Return the error for ``step``, with the place and traceback in the user's files."""
    frames = user_frames(error.__traceback__)
    code = getattr(step.__wrapped__, "__code__", None)
    mine = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    place = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else step.place
    trace = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(error))
    return UserCodeError(step.step_name, place, event, _cause(error), trace)


def _cause(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except (Exception, SystemExit) as second:  # a user's __str__ may do anything
        return f"{name} whose text raised {type(second).__name__}"
    return f"{name}: {text}" if text else name
