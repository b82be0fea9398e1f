"""Error texts: step, place, shortened event and traceback of a user's failure."""

from __future__ import annotations

import codecs
import contextlib
import sys
import traceback
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from wallaroo.dataflow.plan.model import COLLECT_KEY
from wallaroo.errors import CORRECT_IT, CheckpointError, UserCodeError
from wallaroo.steps.keys import WANTED
from wallaroo.steps.kinds import Step
from wallaroo.user_code.user_frames import is_user_frame, module_of, user_frames

EVENT_CHARS_MAX = 200  # limit for an event shown in an error
NO_FACTS: Mapping[str, Any] = MappingProxyType({})
FRAME_BYTES_MAX = 32  # limit for a frame shown in hex
OF_PAYLOADS = (
    'Correct the function or the payloads, or give the decoder on_error="skip" or "dead-letter"; '
    "then run again."
)
NO_KEY = f"a key must be {WANTED}, not "
OF_KEYS = (
    "Return one that does: str(key) of a decimal, a date or a UUID, tuple(key) of a list, the "
    "fields that identify an object. Drop events without a key before, with `.filter`. Then run "
    "again."
)
OF_STATES = (
    "Give its class, and those of the objects in it, the names, modules, kinds and members that "
    "they had, or write @wallaroo.upgrade for the state class; `wallaroo plan APP --checkpoint DIR "
    "--try-upgrade` lists the objects that cannot be read."
)
OF_ENTRIES = (
    "Give their classes the names, modules and kinds that they had, beside new ones under other "
    "names; `wallaroo plan APP --checkpoint DIR --try-upgrade` lists what cannot be read."
)
UNHASHABLE = "TypeError: unhashable type: "  # Python's message for a list as a key
UTF8 = codecs.getincrementaldecoder("utf-8")  # the text may end within a character
ESCAPES = str.maketrans({"\t": r"\t", "\n": r"\n", "\r": r"\r"})


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
    """Return a frame's size and beginning, as text if possible, else in hex.

    >>> show_frame(b'{"id": 7}')
    'frame of 9 bytes: {"id": 7}'
    """
    size = len(payload)
    what = f"frame of {size} byte{'s' * (size != 1)}:"
    head = bytes(payload[:EVENT_CHARS_MAX])
    with contextlib.suppress(UnicodeDecodeError):
        text = UTF8().decode(head, final=len(head) == size).translate(ESCAPES)
        if text.isprintable():
            return f"{what} {text}{'…' * (len(head) < size)}"
    more = " …" if size > FRAME_BYTES_MAX else ""
    return f"{what} {head[:FRAME_BYTES_MAX].hex(' ')}{more}"


def with_details(
    event: str, error: BaseException, key: Any = None, record: Mapping[str, Any] = NO_FACTS
) -> str:
    """Return a text for an event with its key, notes, and its record's facts.

    >>> with_details("7", ValueError(), "a", {"topic": "t", "offset": 3})
    "7 (key 'a', topic t, offset 3)"
    """
    said = [] if key is None or key == COLLECT_KEY else [f"key {shorten(key)}"]
    if said and f"of {said[0]}" in event:  # the message already contains it
        said = []
    said += notes_of(error)
    said += [f"{name} {value}" for name, value in record.items() if value is not None]
    return f"{event} ({', '.join(said)})" if said else event


def notes_of(error: BaseException) -> list[str]:
    """Return the notes on the event of an error, such as its window."""
    return list(getattr(error, "__notes__", ()))


_DESCRIBED = "wallaroo_described"


def blame(step: Step, event: str, error: BaseException) -> NoReturn:
    """Stop the run: raise the UserCodeError for ``step``.

    It is also raised if the step's function called sys.exit; a Ctrl-C is re-raised unchanged, with
    that error for a worker, which receives none (`error_of_exit`).
    """
    described = describe(step, event, error)
    if isinstance(error, KeyboardInterrupt):
        vars(error)[_DESCRIBED] = described
        raise error
    raise described from error


def blame_stored_state(step: Step, key: Any, error: BaseException) -> NoReturn:
    """Stop the run: raise the UserCodeError for a state object that cannot be read."""
    is_users = not getattr(step, "state_class", object).__module__.startswith("wallaroo.")
    fix = OF_STATES if is_users else OF_ENTRIES  # a step's own state holds events
    _blame_stored(step, f"state of key {shorten(key)}", error, fix)


def blame_entries(step: Step, error: BaseException) -> NoReturn:
    """Stop the run: raise the UserCodeError for a step's entries that cannot be read."""
    _blame_stored(step, "events or accumulators in the checkpoint", error, OF_ENTRIES)


def _blame_stored(step: Step, what: str, error: BaseException, fix: str) -> NoReturn:
    is_unreadable = isinstance(error, Exception) and not isinstance(error, CheckpointError)
    if not is_unreadable or _is_of_user(error):
        blame(step, what, error)  # a user function raised it, or it already states a remedy
    described = describe(step, what, error)
    cause = f"cannot be read back: {described.cause}"
    raise UserCodeError(
        step.step_name, described.place, what, cause, described.trace, fix
    ) from error


def _is_of_user(error: BaseException) -> bool:
    """Return whether code outside this package and the standard library raised it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_user_frame(frame))
    return any(
        module_of(frame).partition(".")[0] not in sys.stdlib_module_names for frame in frames
    )


def error_of_exit(error: SystemExit | KeyboardInterrupt) -> UserCodeError:
    """Return the error for an exception that a worker may be unable to pass on."""
    words = f"a function of the application raised {error!r}"
    unknown = UserCodeError("(unknown)", "", "(unknown)", words)
    described: UserCodeError = vars(error).get(_DESCRIBED, unknown)
    return described


def describe(step: Step, event: str, error: BaseException) -> UserCodeError:
    """Return the error for ``step``, with the place and traceback in the user's files."""
    frames = user_frames(error.__traceback__)
    code = getattr(step.__wrapped__, "__code__", None)
    module = sys.modules.get(step.__module__)
    found = {getattr(module, "__file__", None), step.place.rpartition(":")[0]}
    files = {file for file in (found if code is None else {*found, code.co_filename}) if file}
    mine = [frame for frame in frames if frame.filename in files]
    place = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else step.place
    trace = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(error))
    fix = OF_PAYLOADS if step.kind == "decoder" else CORRECT_IT
    cause = _cause(error)
    if step.kind == "key_extractor" and not mine and cause.startswith(UNHASHABLE):
        kind = cause.removeprefix(UNHASHABLE).strip("'")
        cause = f"TypeError: {NO_KEY}{kind}"
    if NO_KEY in cause:
        fix = OF_KEYS
    return UserCodeError(step.step_name, place, event, cause, trace, fix)


def _cause(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except (Exception, SystemExit) as second:  # a user's __str__ may do anything
        return f"{name} whose text raised {type(second).__name__}"
    return f"{name}: {text}" if text else name
