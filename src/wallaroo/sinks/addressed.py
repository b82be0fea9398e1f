"""Outputs that may carry an address, as staged bytes.

Where it runs: workers and driver; pure.

An address is a routing key or a topic.  Outputs are packed in the worker and unpacked by the
committer.

The format: u16 length of the address (big endian), the address in UTF-8, the body.  An empty
address means the sink's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from wallaroo.serdes.shape_errors import shown

_LENGTH = struct.Struct(">H")


class AddressedOutput(NamedTuple):
    """One message, and its topic, subject or routing key."""

    value: bytes
    address: str


@dataclass(frozen=True, slots=True)
class AddressPack:
    """The packing of ``body`` or ``(body, address)``.

    A system may refuse the address.

    ``problem_of`` returns why an address cannot be used, or "".  An empty one is checked only if
    the sink has no address of its own.
    """

    problem_of: Callable[[str], str]
    has_own: bool

    def __call__(self, output: Any) -> bytes:
        """Pack an output; raise TypeError or ValueError if it has no form or no usable address."""
        address = output[1] if type(output) is tuple and len(output) == 2 else ""
        is_used = isinstance(address, str) and (address or not self.has_own)
        if is_used and (problem := self.problem_of(address)):
            raise ValueError(f"{shown(address)}: {problem}")
        return pack(output)


def pack(output: Any) -> bytes:
    """Return the staged form of ``body`` or ``(body, address)``.

    Raises TypeError for anything else.

    >>> unpack(pack(("on", "lamps/7")))
    ('lamps/7', b'on')
    """
    body, address = output if type(output) is tuple and len(output) == 2 else (output, "")
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes) or not isinstance(address, str):
        raise TypeError(
            f"the encoder of this sink must return bytes or str, or a tuple of that and an "
            f"address (str), not {shown(output)}"
        )
    raw = address.encode()
    return _LENGTH.pack(len(raw)) + raw + body


def decoded(packed: bytes, own: str) -> AddressedOutput:
    """Return a staged output; ``own`` is the sink's address."""
    address, body = unpack(packed)
    return AddressedOutput(body, address or own)


def unpack(packed: bytes) -> tuple[str, bytes]:
    end = _LENGTH.size + _LENGTH.unpack_from(packed)[0]
    return packed[_LENGTH.size : end].decode(), packed[end:]
