"""States of one vectorized state step in one task and batch.

They are a table with a row per key.

A key is stored as the pickle of a dict of its row's fields, like any state object: so it can be
inspected without numpy, and fields may be added and removed. If all fields have a fixed length,
pickles of one dtype differ only in their values: they are then written and read column by column,
through a dtype that describes the pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.packing import PICKLED, Packing
from wallaroo.engine.columnar.keys import Array, Coder, Keys, same_key
from wallaroo.engine.failures.error_context import blame, blame_stored_state, shorten
from wallaroo.engine.stores.keyed_state import KeyedState, Read
from wallaroo.steps.state_versions import Evolution
from wallaroo.vectorized.steps import BatchStateComputation

_ROWS_MIN = 1024
# opcodes of pickle (Lib/pickle.py): the bytes before a value of each kind of dtype
# protocol 5, an empty dict, MARK; SETITEMS, STOP
_BEGIN = b"\x80\x05}("
_END = b"u."
_TEXT = b"\x8c"  # SHORT_BINUNICODE, one byte of length
# LONG1 of 8 bytes, and of 9: an unsigned number's sign
_LONG8 = b"\x8a\x08"
_LONG9 = b"\x8a\x09"
_FLOAT = b"G"  # BINFLOAT, big endian
_BYTES = b"C"  # SHORT_BINBYTES, one byte of length
# NEWTRUE, NEWFALSE
_TRUE = 0x88
_FALSE = 0x89


@dataclass(frozen=True, slots=True)
class RowPickle:
    """Dtype of a row's pickle; ``constants`` are the fields that never vary."""

    dtype: np.dtype[Any]
    constants: tuple[tuple[str, bytes], ...]

    def dumps(self, rows: Array) -> list[bytes]:
        packed = np.empty(len(rows), self.dtype)
        for name, value in self.constants:
            packed[name] = np.frombuffer(value, f"V{len(value)}")[0]
        assert rows.dtype.names is not None
        for name in rows.dtype.names:
            column = rows[name]
            is_bool = column.dtype.kind == "b"
            packed[f"={name}"] = np.where(column, _TRUE, _FALSE) if is_bool else column
        return list(packed.view(f"V{self.dtype.itemsize}").tolist())

    def loads(self, raw: list[bytes], into: Array) -> bool:
        """Read pickles into rows. Return False (rows are undefined) if one is not of this dtype."""
        size = self.dtype.itemsize
        if any(len(each) != size for each in raw):
            return False
        packed = np.frombuffer(b"".join(raw), self.dtype)
        content = packed.view(np.uint8).reshape(len(raw), size)
        assert self.dtype.fields is not None
        for name, value in self.constants:
            begin = self.dtype.fields[name][1]
            found = content[:, begin : begin + len(value)]
            if not bool((found == np.frombuffer(value, np.uint8)).all()):
                return False
        assert into.dtype.names is not None
        for name in into.dtype.names:
            column = packed[f"={name}"]
            into[name] = column == _TRUE if into.dtype[name].kind == "b" else column
            if into.dtype[name].itemsize < column.dtype.itemsize and not _are_same(
                into[name], column
            ):
                return False
        return True


@lru_cache(maxsize=64)
def row_pickle(dtype: np.dtype[Any]) -> RowPickle | None:
    """Return the pickle of a row of a dtype, None if a field's length varies."""
    fields: list[tuple[str, str]] = []
    constants: list[tuple[str, bytes]] = []

    def constant(value: bytes) -> None:
        name = f"#{len(constants)}"
        fields.append((name, f"V{len(value)}"))
        constants.append((name, value))

    constant(_BEGIN)
    assert dtype.names is not None
    for name in dtype.names:
        found = _value_of(dtype[name])
        encoded = name.encode()
        if found is None or len(encoded) > 255:
            return None
        before, value, after = found
        constant(_TEXT + bytes([len(encoded)]) + encoded + before)
        fields.append((f"={name}", value))
        if after:
            constant(after)
    constant(_END)
    return RowPickle(np.dtype(fields), tuple(constants))


def _value_of(dtype: np.dtype[Any]) -> tuple[bytes, str, bytes] | None:
    """Return the opcodes before a value, its dtype in the pickle, and the bytes after it."""
    if dtype.shape:
        return None
    match dtype.kind:
        case "b":
            return b"", "u1", b""
        case "i":
            return _LONG8, "<i8", b""
        case "u":
            return _LONG9, "<u8", b"\0"
        case "f" if dtype.itemsize <= 8:
            return _FLOAT, ">f8", b""
        case "S" if 0 < dtype.itemsize < 256:
            return _BYTES + bytes([dtype.itemsize]), f"S{dtype.itemsize}", b""
        case _:
            return None


class StateTable(KeyedState):
    """A step's states as a table.

    ``at`` loads those of keys; ``states``: a row or object per key.
    """

    step: BatchStateComputation[Any, Any, Any]

    def __init__(
        self,
        step: BatchStateComputation[Any, Any, Any],
        read: Read,
        packing: Packing,
        evolution: Evolution | None = None,
    ) -> None:
        super().__init__(step, read, packing, evolution)
        self._coder = Coder()
        self._dtype = np.dtype(object if step.layout is None else step.layout)
        self._pickle = None
        if packing.dumps is PICKLED.dumps and self._dtype.names is not None:
            self._pickle = row_pickle(self._dtype)
        self._initial: Any = _initial_row(step, self._dtype)
        self._rows = np.empty(_ROWS_MIN, self._dtype)
        self._keys = np.empty(_ROWS_MIN, object)
        self._count = 0
        self._was: list[bytes | None] = []  # as of the last commit, by number

    @property
    def states(self) -> Array:
        """Return the states of all keys touched so far."""
        return self._rows[: self._count]

    @property
    def keys(self) -> Array:
        return self._keys[: self._count]

    def at(self, keys: Keys) -> Array:
        """Return the index in ``states`` of each of these keys.

        A state not seen before is loaded, or new.  Raises UserCodeError if one cannot be
        created or read.
        """
        codes = self._coder.codes(keys)
        if len(self._coder.keys) > self._count:
            self._bring(self._coder.keys[self._count :])
        return codes

    def upgrade(self, key: Key) -> None:
        """Load a key's stored state for writing, unless the batch already has."""
        self.at(same_key(key, 1))

    def _bring(self, keys: list[Key]) -> None:
        first = self._count
        end = first + len(keys)
        if end > len(self._rows):
            size = max(2 * len(self._rows), end)
            self._rows = _grown(self._rows, first, size)
            self._keys = _grown(self._keys, first, size)
        raw = [self._read(key) for key in keys]
        self._keys[first:end] = keys
        self._was += raw
        self._count = end
        if self._dtype.names is None:
            for number, each in enumerate(raw, first):
                self._rows[number] = self._object(keys[number - first], each)
            return
        self._rows[first:end] = self._initial
        stored = [number for number, each in enumerate(raw, first) if each is not None]
        if stored:
            self._load(stored, [each for each in raw if each is not None])

    def _object(self, key: Key, raw: bytes | None) -> Any:
        try:
            return self._make() if raw is None else self._loads(raw)
        except BaseException as error:
            if raw is not None:
                blame_stored_state(self.step, key, error)
            blame(self.step, f"state of key {shorten(key)}", error)

    def _load(self, numbers: list[int], raw: list[bytes]) -> None:
        if self._pickle is not None:
            rows = np.empty(len(raw), self._dtype)
            if self._pickle.loads(raw, rows):
                self._rows[numbers] = rows
                return
        for number, each in zip(numbers, raw, strict=True):
            row = self._rows[number : number + 1]
            try:
                _read_fields(row, self._loads(each))
            except BaseException as error:
                blame(self.step, f"state of key {shorten(self._keys[number])}", error)

    def changes(self) -> Iterator[tuple[Key, bytes | None]]:
        """Yield key and pickled state of every touched key that differs from the stored state."""
        keys = self._coder.keys
        for number, raw in enumerate(self._pickled()):
            if raw != self._was[number]:
                yield keys[number], raw

    def _pickled(self) -> list[bytes]:
        if self._pickle is not None:
            return self._pickle.dumps(self.states)
        names = self._dtype.names
        return [
            self._dumped(number, state if names is None else _fields(state, names))
            for number, state in enumerate(self.states)
        ]

    def _dumped(self, number: int, state: Any) -> bytes:
        try:
            return self._dumps(state)
        except BaseException as error:
            blame(self.step, f"state of key {shorten(self._keys[number])}", error)


def row_reader(layout: np.dtype[Any], packing: Packing) -> Callable[[bytes], bool]:
    """Return a function that reads a stored row, and returns whether it has all fields.

    It raises ValueError if the dtype does not hold a stored value.
    """
    row = np.zeros(1, layout)
    names = frozenset(layout.names or ())

    def read(raw: bytes) -> bool:
        fields: dict[str, Any] = packing.loads(raw)
        _read_fields(row, fields)
        return names <= fields.keys()

    return read


def _read_fields(row: Array, fields: Mapping[str, Any]) -> None:
    """Copy the fields that both the stored row and the dtype have."""
    for name in row.dtype.names or ():
        if name in fields:
            _set(row, name, fields[name])


def _are_same(column: Array, stored: Array) -> bool:
    return bool(((column == stored) | ((column != column) & (stored != stored))).all())


def _set(row: Array, name: str, stored: Any) -> None:
    """Set a row's field.  Raises ValueError if its dtype does not hold the stored value."""
    kind = row.dtype[name]
    is_time = kind.base.kind in "mM"
    try:
        row[name] = _times(stored, kind.base) if is_time else stored
        is_kept = is_time or _is_kept(row[name].tolist()[0], stored)
    except (TypeError, ValueError, OverflowError):
        is_kept = False
    if not is_kept:
        raise ValueError(
            f"field {name!r} is stored as {stored!r}, which {kind.str} cannot hold; keep its "
            "former dtype, or give the new field another name"
        )


def _times(stored: Any, kind: np.dtype[Any]) -> Array:
    """Return stored times as those of a dtype.  Raises ValueError if it does not hold them."""
    if isinstance(stored, list):
        return np.array([_times(each, kind) for each in stored], kind)
    if isinstance(stored, tuple):
        unit, count = stored
        exact = np.array(count, unit)
    elif isinstance(stored, int):  # by an earlier version, which left its unit out
        if not isinstance(np.zeros((), kind).tolist(), int):
            raise ValueError(stored)
        exact = np.array(stored, kind)
    else:
        exact = np.array(stored, f"{kind.kind}8")
    times = exact.astype(kind)
    if exact.dtype.kind != kind.kind or not np.array_equal(
        times.astype(exact.dtype), exact, equal_nan=True
    ):
        raise ValueError(stored)
    return times


def _is_kept(value: Any, stored: Any) -> bool:
    if isinstance(value, list) and isinstance(stored, list):
        return len(value) == len(stored) and all(map(_is_kept, value, stored))
    if isinstance(value, bytes) and isinstance(stored, bytes):
        return value.rstrip(b"\0") == stored.rstrip(b"\0")
    return bool(value == stored or (value != value and stored != stored))


def _grown(column: Array, count: int, size: int) -> Array:
    grown = np.empty(size, column.dtype)
    grown[:count] = column[:count]
    return grown


def _fields(row: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _stored(row[name].tolist(), row.dtype[name].base) for name in names}


def _stored(value: Any, kind: np.dtype[Any]) -> Any:
    """Return a field's value as it is stored: a time that Python has no type for with its unit."""
    if isinstance(value, list):
        return [_stored(each, kind) for each in value]
    return (kind.str[1:], value) if kind.kind in "mM" and isinstance(value, int) else value


def _initial_row(step: BatchStateComputation[Any, Any, Any], dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return None
    row = np.zeros(1, dtype)
    if step.initial is not None:
        row[0] = tuple(step.initial)
    return row[0]
