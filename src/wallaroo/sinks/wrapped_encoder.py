"""A user's encoder whose outputs are packed, with an address if they carry one.

Where it runs: the configuration is pickled; encoders run in workers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from wallaroo.serdes.shape_errors import shown
from wallaroo.steps.kinds import Encoder, WrappedStep

# Returns the staged form of an output; raises TypeError or ValueError if it has none.  If it has
# `pack_all`, outputs of its `output_type` wait for that, see `Encoder`.
Pack = Callable[[Any], Any]


class WrappedEncoder(WrappedStep, Encoder[Any]):
    """The user's encoder ``inner`` with ``pack`` applied to its outputs.

    It can be pickled.
    """

    inner: Encoder[Any]

    def __init__(self, inner: Encoder[Any], pack: Pack):
        function = inner.function

        def encode(event: Any) -> Any:
            output = function(event)
            return None if output is None else pack(output)

        super().__init__(encode, inner.step_name, inner.on_error)
        self._take_over(inner, pack)
        self.pack = pack
        self.output_type = getattr(pack, "output_type", bytes)
        if inner is AS_IT_IS:
            self.encode_block = getattr(pack, "block", None)

    def pack_all(self, outputs: list[Any]) -> list[bytes]:
        pack_all = getattr(self.pack, "pack_all", super().pack_all)
        packed: list[bytes] = pack_all(outputs)
        return packed


def wrapped(inner: Any, pack: Pack) -> Any:
    """Return an encoder whose outputs are packed; without ``inner`` it packs events.

    Anything that is not an encoder is returned as it is: the build reports it.
    """
    if isinstance(inner, WrappedEncoder):  # a copy of a configuration
        inner = inner.inner
    if inner is not None and not isinstance(inner, Encoder):
        return inner
    return WrappedEncoder(inner or AS_IT_IS, pack)


def _as_it_is(event: Any) -> Any:
    return event


AS_IT_IS: Encoder[Any] = Encoder(_as_it_is, "outputs as they are")
AS_IT_IS.__qualname__ = "AS_IT_IS"  # pickled by reference, under the name it has here


_LENGTH = struct.Struct(">H")


class AddressedOutput(NamedTuple):
    """One message, and its topic, subject or routing key.

    An address is a routing key or a topic. Outputs are packed in the worker and unpacked by the
    committer. The format: u16 length of the address (big endian), the address in UTF-8, the body.
    An empty address means the sink's own.
    """

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
