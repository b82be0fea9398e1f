"""The fields of dead letters, the events that failed, with what is known about each."""

from __future__ import annotations

FIELDS = (
    "application",
    "step",
    "kind",
    "place",
    "batch",
    "source",
    "record",
    "key",
    "about",
    "event",
    "frame_hex",
    "frame_bytes",
    "event_pickle",
    "error",
    "traceback",
)
