"""Outputs for Redis as staged bytes.

They are checked and packed in the worker, and unpacked by the committer.

Where it runs: workers and driver; pure.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

from wallaroo.serdes.shape_errors import shown
from wallaroo.sinks.changes import Delete, refuse_delete, require_key, row_with

VALUE = b"value"  # the field of an output that is one value
Fields = list[tuple[bytes, bytes | None]]  # None: the field is removed (hashes)


def pack_entry(output: Any) -> bytes:
    """Return the staged form of an entry of a stream; raise TypeError or ValueError for none."""
    return pickle.dumps(_of_stream(output), pickle.HIGHEST_PROTOCOL)


def pack_field(output: Any) -> bytes:
    """Return the staged form of a field of a hash; raise TypeError for anything else."""
    return pickle.dumps(_of_hash(output), pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True, slots=True)
class KeyPack:
    """The packing of rows as values of keys, and of deletions.

    ``template`` is the key's text with the names of fields, ``value`` the field that is the value;
    without it the whole row is, as a hash.  The staged form is the key, and a value, the fields of
    a hash, or None.
    """

    template: str
    value: str
    names: tuple[str, ...] = field(init=False)  # the fields of the key

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _fields_in(self.template))

    def __call__(self, output: Any) -> bytes:
        """Pack a row or a `Delete`; raise TypeError or ValueError if it does not fit."""
        names = self.names
        if isinstance(output, Delete):
            values = output.values(names)
            require_key(names, values)
            return self._packed(dict(zip(names, values, strict=True)), None)
        row = row_with(output, names)
        if not self.value:
            fields = [(_bytes(str(n)), _bytes(v)) for n, v in row.items() if v is not None]
            return self._packed(row, fields)
        if row.get(self.value) is None:
            raise ValueError(f"the row has no value in '{self.value}'; a Delete removes its key")
        return self._packed(row, _bytes(row[self.value]))

    def _packed(self, row: dict[str, Any], value: Any) -> bytes:
        texts = {name: _bytes(row[name]).decode() for name in self.names}
        key = self.template.format_map(texts).encode()
        return pickle.dumps((key, value), pickle.HIGHEST_PROTOCOL)


def _fields_in(template: str) -> tuple[str, ...]:
    """Return the fields that a key's text names; raise ValueError if there are none."""
    names = []
    for _, name, form, conversion in Formatter().parse(template):
        if name is not None and (form or conversion or not name.isidentifier()):
            raise ValueError(f"{{{name}}} is not a field name")
        names += [] if name is None else [name]
    if not names:
        raise ValueError("it names no field")
    return tuple(names)


def unpacked_key(packed: memoryview) -> tuple[bytes, bytes | Fields | None]:
    """Return a key and its content: a value, the fields of a hash, or None if it is deleted."""
    change: tuple[bytes, bytes | Fields | None] = pickle.loads(packed)
    return change


def decoded_key(packed: bytes) -> Any:
    """Return a key with its value, which is a dict if it is a hash; or its deletion.

    >>> decoded_key(KeyPack("user:{id}", "")({"id": 7, "name": "Ada"}))
    ('user:7', {'id': b'7', 'name': b'Ada'})
    >>> decoded_key(KeyPack("user:{id}", "")(Delete(7)))
    Delete(key='user:7')
    """
    key, value = unpacked_key(memoryview(packed))
    if value is None:
        return Delete(_name(key))
    fields = value if isinstance(value, bytes) else {_name(name): each for name, each in value}
    return _name(key), fields


def _of_stream(output: Any) -> Fields:
    refuse_delete(output)
    if isinstance(output, dict) and output:
        return [(_bytes(name), _bytes(value)) for name, value in output.items()]
    if isinstance(output, dict):
        raise ValueError("an entry of a stream needs a field")
    return [(VALUE, _bytes(output))]


def _of_hash(output: Any) -> Fields:
    if isinstance(output, Delete):
        return [(_bytes(*output.values(("field",))), None)]
    if not isinstance(output, tuple) or len(output) != 2:
        raise TypeError(
            f"an encoder for a Redis hash must return (field, value), not {shown(output)}"
        )
    name, value = output
    return [(_bytes(name), None if value is None else _bytes(value))]


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value).encode()
    raise TypeError(f"Redis takes bytes, str, int and float, not {shown(value)}")


def unpacked(packed: memoryview) -> Fields:
    fields: Fields = pickle.loads(packed)
    return fields


def decoded_entry(packed: bytes) -> dict[str, bytes | None]:
    """Return the fields of an entry of a stream by their names.

    >>> decoded_entry(pack_entry({"n": 7}))
    {'n': b'7'}
    """
    return {_name(name): value for name, value in unpacked(memoryview(packed))}


def decoded_field(packed: bytes) -> tuple[str, bytes | None]:
    [(name, value)] = unpacked(memoryview(packed))
    return _name(name), value


def _name(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")
