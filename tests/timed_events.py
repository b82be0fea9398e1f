"""The events of tests about time: a key, a number and a time, as words of a line of text."""

from __future__ import annotations

from typing import Any

import wallaroo

Event = tuple[str, int, int]  # key, number, time


@wallaroo.decoder
def decode(payload: bytes) -> Event:
    key, number, time = payload.decode().split()
    return key, int(number), int(time)


@wallaroo.decoder(pure=True)
def decode_purely(payload: bytes) -> Event:
    """The same where frames may travel undecoded."""
    key, number, time = payload.decode().split()
    return key, int(number), int(time)


def pack(event: Event) -> bytes:
    """What `decode` reads."""
    return " ".join(map(str, event)).encode()


def time_of(event: Event) -> int:
    return event[2]


@wallaroo.key_extractor
def key_of(event: Event) -> str:
    return event[0]


@wallaroo.encoder
def encode(result: Any) -> str:
    return repr(result)
