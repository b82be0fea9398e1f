"""Dead letters: records of events for which a step's function raised.

Each is one JSON object on a line.

Invariant of dead letters: a letter depends only on the event, its step, the exception and the
batch's number.  It holds no clock, no process and no address, so a repeated batch stages the same
bytes, if the event's repr and pickle are stable (a set of strings' are not).
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from wallaroo.engine.failures.error_context import NO_FACTS, blame, describe, notes_of, shorten
from wallaroo.steps.kinds import Encoder, Step

# limit for a frame shown in hex, and for a pickled event: a larger letter costs more than it helps
EVENT_BYTES_MAX = 64 * 1024
TRACE_CHARS_MAX = 8192  # the innermost part of a deep recursion's traceback is enough
CAUSE_CHARS_MAX = 2000
KEY_CHARS_MAX = 1024
INT_BITS_MAX = 63  # JSON readers read a larger one as a float

Letter = dict[str, Any]


def letter_of(
    application: str,
    batch: int,
    step: Step,
    source: str,
    key: Any,
    event: Any,
    error: BaseException,
    record: Mapping[str, Any] = NO_FACTS,
) -> Letter:
    """Describe a failed event.

    ``source`` is empty and ``key`` None if unknown; ``record``: facts about the source's record.
    """
    failure = describe(step, "", error)
    letter: Letter = {
        "application": application,
        "step": step.step_name,
        "kind": step.kind,
        "place": failure.place,
        "batch": batch,
    }
    if source:
        letter["source"] = source
    if record:
        letter["record"] = dict(record)
    if key is not None:
        letter["key"] = _plain(key)
    if notes := notes_of(error):
        letter["about"] = ", ".join(notes)
    letter["event"] = shorten(event)
    letter.update(_whole(event))
    letter["error"] = failure.cause[:CAUSE_CHARS_MAX]
    letter["traceback"] = failure.trace[-TRACE_CHARS_MAX:]
    return letter


def _plain(key: Any) -> str | int:
    if isinstance(key, str) and len(key) <= KEY_CHARS_MAX:
        return str(key)
    if isinstance(key, int) and key.bit_length() <= INT_BITS_MAX:
        return int(key)
    return shorten(key)


def _whole(event: Any) -> Letter:
    """Return the event itself: bytes in hex, else its pickle, if possible and small."""
    if isinstance(event, bytes):
        return {"frame_bytes": len(event), "frame_hex": event[:EVENT_BYTES_MAX].hex()}
    try:
        pickled = pickle.dumps(event, 5)
    except (
        Exception,
        SystemExit,
    ):  # a letter is written for any event, even one that failed because it cannot be pickled
        return {}
    return (
        {"event_pickle": base64.b64encode(pickled).decode()}
        if len(pickled) <= EVENT_BYTES_MAX
        else {}
    )


def as_line(letter: Letter) -> bytes:
    """Return one line of JSON, its newline included."""
    return json.dumps(letter).encode() + b"\n"


def writer_of(
    encoder: Encoder[Any] | None, append: Callable[[Any], None]
) -> Callable[[Letter], None]:
    """Return a writer of letters as JSON or by an encoder, whose failure stops the run."""
    if encoder is None:
        return lambda letter: append(as_line(letter))
    encode_letter = encoder

    def write(letter: Letter) -> None:
        try:
            encoded = encode_letter.function(letter)
        except BaseException as error:
            blame(encode_letter, shorten(letter), error)
        if isinstance(encoded, str):
            append(encoded.encode())
        elif encoded is not None:
            append(encoded if isinstance(encoded, encode_letter.output_type) else bytes(encoded))

    return write
