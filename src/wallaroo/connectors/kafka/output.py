"""Kafka records as staged bytes.

The result of an encoder is packed in the worker and unpacked by the committer.

Where it runs: workers and driver; pure.

The format of a staged record (big endian): i32 partition (-1: by key), i32 length of the key (-1:
no key), i32 length of the value (-1: a tombstone), u16 number of headers, the key, the value, then
for each header u16 length of the name, i32 length of its value (-1: none), name and value.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from wallaroo.serdes.typed import refuse_nan, written
from wallaroo.sinks.changes import Delete, refuse_delete, require_key, row_with

HEAD = struct.Struct(">iiiH")
HEADER = struct.Struct(">Hi")
NONE = -1

Headers = tuple[tuple[str, bytes | None], ...] | dict[str, bytes | None]


class KafkaOutput(NamedTuple):
    """One record for Kafka.

    An encoder may return it, a shorter tuple, or the value alone.
    """

    value: bytes | str | None  # None: a tombstone, which deletes the key in a compacted topic
    key: bytes | str | int | None = None
    partition: int | None = None
    headers: Headers = ()  # pairs, or a dict


def pack(output: Any) -> bytes:
    """Return the staged form of an encoder's result.

    That is a value, ``(value, key)``, ``(value, key, partition)`` as in Wallaroo, or a
    `KafkaOutput`.  Raises TypeError for anything else.

    >>> unpack(memoryview(pack(("v", 7, 2))))
    (b'v', b'7', 2, ())
    """
    if type(output) is bytes:
        return HEAD.pack(NONE, NONE, len(output), 0) + output
    fields = output if isinstance(output, tuple) else (output,)
    if not 1 <= len(fields) <= len(KafkaOutput._fields):
        raise TypeError(
            f"an encoder for Kafka must return a value, (value, key) or (value, key, partition), "
            f"this one returned a tuple of {len(fields)}"
        )
    record = KafkaOutput(*fields)
    if record.value is None and record.key is None:
        raise TypeError("a record without a value needs a key: it deletes the key's value")
    if record.partition is not None and not hasattr(record.partition, "__index__"):
        raise TypeError(f"partition {record.partition!r} is not a number of a partition")
    pairs = record.headers
    headers: Any = tuple(pairs.items()) if isinstance(pairs, dict) else pairs
    value = _bytes("value", record.value)
    key = _bytes("key", str(record.key) if type(record.key) is int else record.key)
    head = HEAD.pack(
        NONE if record.partition is None else record.partition,
        NONE if key is None else len(key),
        NONE if value is None else len(value),
        len(headers),
    )
    return b"".join([head, key or b"", value or b"", *map(_header, headers)])


@dataclass(frozen=True, slots=True)
class KeyPack:
    """The packing of rows as keyed records, and of deletions as tombstones.

    The value is the row as JSON.  The key is the field's text, of several fields a JSON object.
    """

    names: tuple[str, ...]

    def __call__(self, output: Any) -> bytes:
        """Pack a row, a `Delete` or a `KafkaOutput`; raise TypeError or ValueError if it is none.

        >>> decoded(KeyPack(("id",))({"id": 7, "item": "tea"}))[:2]
        (b'{"id":7,"item":"tea"}', b'7')
        """
        if isinstance(output, Delete):
            values = output.values(self.names)
            require_key(self.names, values)
            return pack(KafkaOutput(None, self._text(values)))
        if isinstance(output, KafkaOutput):
            if output.key is None:
                raise ValueError("a record of a sink with key= needs a key")
            return pack(output)
        row = row_with(output, self.names)
        value = msgspec.json.encode(row, enc_hook=written)
        if b"null" in value:
            refuse_nan(row)
        return pack(KafkaOutput(value, self._text(tuple(row[name] for name in self.names))))

    def _text(self, values: tuple[Any, ...]) -> bytes | str:
        if len(values) > 1:
            fields = dict(zip(self.names, values, strict=True))
            return msgspec.json.encode(fields, enc_hook=written)
        if isinstance(values[0], bytes | str):
            return values[0]
        return msgspec.json.encode(values[0], enc_hook=written).strip(b'"')


def _bytes(what: str, value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    refuse_delete(value)
    raise TypeError(
        f"an encoder for Kafka must return bytes or str as the {what}, this one returned "
        f"{type(value).__name__}"
    )


def _header(header: Any) -> bytes:
    is_pair = isinstance(header, tuple | list) and len(header) == 2
    if not is_pair or not isinstance(header[0], str):
        raise TypeError(f"headers are (name, value) or a dict, with names of str, not {header!r}")
    name = header[0].encode()
    value = _bytes("value of a header", header[1])
    return HEADER.pack(len(name), NONE if value is None else len(value)) + name + (value or b"")


def unpack(
    packed: memoryview,
) -> tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | tuple[()]]:
    """Return ``(value, key, partition, headers)`` of a staged record; partition -1 is by key."""
    partition, key_length, value_length, count = HEAD.unpack_from(packed)
    at = HEAD.size
    key, at = _taken(packed, at, key_length)
    value, at = _taken(packed, at, value_length)
    if not count:
        return value, key, partition, ()
    headers = []
    for _ in range(count):
        name_length, length = HEADER.unpack_from(packed, at)
        at += HEADER.size
        name = bytes(packed[at : at + name_length]).decode()
        content, at = _taken(packed, at + name_length, length)
        headers.append((name, content))
    return value, key, partition, headers


def decoded(packed: bytes) -> KafkaOutput:
    """Return a staged record; its partition is None if the key determines it.

    >>> decoded(pack(("v", 7)))
    KafkaOutput(value=b'v', key=b'7', partition=None, headers=())
    """
    value, key, partition, headers = unpack(memoryview(packed))
    return KafkaOutput(value, key, None if partition == NONE else partition, tuple(headers))


def _taken(packed: memoryview, at: int, length: int) -> tuple[bytes | None, int]:
    if length == NONE:
        return None, at
    return bytes(packed[at : at + length]), at + length
