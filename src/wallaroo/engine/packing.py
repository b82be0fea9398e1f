"""Packing: how values become bytes, those of a state object and those of a block's events.

Where it runs: pure.

Invariants of packing:

* A value is packed when it is emitted.  What happens to an object later, in the function that
  returned it or in the state that refers to it, does not change what was emitted.
* No two events of a block share an object that can change, so that no result depends on which
  events travel in one block.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

# values that cannot change: they are kept as they are until their block is full.  None is not among
# them, since in a column it is in the place of a value that was pickled
ATOMIC = frozenset({str, bytes, int, float, bool})
NOTHING_ATOMIC: frozenset[type[Any]] = frozenset()
# classes of events to which the values of one block refer by two bytes; each further one costs its
# name per event
CLASSES_MAX = 16
# opcodes of protocol 3, the last one that numbers what it remembers explicitly and has no frames
_PROTOCOL = 3
_BEGIN_LIST, _END_LIST, _POP = b"\x80\x03](", b"e.", b"0"


class Kind(Enum):
    """What the values of a block are."""

    VALUES = "values"  # events, pickled
    FRAMES = "frames"  # payloads that are not decoded yet
    SERIALIZED = "serialized"  # events, by the application's own serialize
    COLUMNS = "columns"  # rows as columns (``engine.columns``)


class Column(Protocol):
    """The values of one block while it fills; each is packed as it is when it is added."""

    def append(self, value: Any, /) -> None:
        """Take a value of an atomic type."""

    def put(self, value: Any, /) -> None:
        """Take any value.  Raises what packing it raises; the column is then as before."""

    def take(self) -> Any:
        """Return what ``unpack`` will read, and begin again with nothing."""


class PickleStream:
    """Values pickled one after the other, each by itself, into one pickle of their list.

    The pickler forgets everything between two values, but for the classes of values: so values
    share no objects, and still name their class by two bytes.  It forgets by being given its memo
    as it was; explicit memo numbers (protocol 3) let one ``loads`` read all values.
    """

    __slots__ = ("_buffer", "_classes", "_end", "_memo", "_pickler")

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._pickler = pickle.Pickler(self._buffer, _PROTOCOL)
        self._classes: set[type[Any]] = set()
        self._memo: dict[int, tuple[int, Any]] = {}
        self._end = self._buffer.write(_BEGIN_LIST)

    def add(self, value: Any) -> None:
        """Pickle one value.  Raises what pickling it raises; the stream is then as before."""
        if type(value) not in self._classes:
            self._introduce(type(value))
        self._pickler.memo = self._memo
        try:
            self._pickler.dump(value)
        except BaseException:
            self._undo()
            raise
        self._end = self._buffer.seek(-1, io.SEEK_CUR)  # the next value overwrites the STOP

    def _introduce(self, cls: type[Any]) -> None:
        """Put the class before its first value, so that all values may refer to it."""
        self._classes.add(cls)
        if len(self._memo) >= CLASSES_MAX or cls.__module__ == "builtins":
            return
        self._pickler.memo = self._memo
        try:
            self._pickler.dump(cls)
        except Exception:  # the value may pickle all the same, or says itself what is wrong
            self._undo()
            return
        self._buffer.seek(-1, io.SEEK_CUR)
        self._buffer.write(_POP)
        self._end = self._buffer.tell()
        self._memo = self._pickler.memo.copy()

    def _undo(self) -> None:
        self._buffer.seek(self._end)
        self._buffer.truncate()

    def take(self) -> bytes | None:
        """Return the pickle of the list of values, None where there are none; begin again."""
        if self._end == len(_BEGIN_LIST):
            return None
        self._buffer.write(_END_LIST)
        content = self._buffer.getvalue()
        self._pickler.clear_memo()
        self._classes.clear()
        self._memo = {}
        self._buffer.seek(0)
        self._buffer.truncate()
        self._end = self._buffer.write(_BEGIN_LIST)
        return content


class ValueColumn:
    """Atomic values in a list, all others in a stream; None in the list is in the place of the
    stream's next one.
    """

    __slots__ = ("_add", "_stream", "_values", "append")

    append: Callable[[Any], None]

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._stream = PickleStream()
        self._add = self._stream.add
        self.append = self._values.append

    def put(self, value: Any) -> None:
        """Take any value, as it is now."""
        if type(value) is tuple and ATOMIC.issuperset(map(type, value)):
            self.append(value)
            return
        self._add(value)
        self.append(None)

    def take(self) -> tuple[list[Any] | None, bytes | None]:
        """Return the list, None where all values are in the stream, and the stream."""
        stream = self._stream.take()
        is_mixed = stream is None or any(value is not None for value in self._values)
        values = list(self._values) if is_mixed else None
        self._values.clear()
        return values, stream


class FrameColumn:
    """Payloads: bytes, which cannot change."""

    __slots__ = ("_payloads", "append", "put")

    append: Callable[[Any], None]
    put: Callable[[Any], None]

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self.append = self.put = self._payloads.append

    def take(self) -> list[bytes]:
        """Return the payloads."""
        payloads = list(self._payloads)
        self._payloads.clear()
        return payloads


class SerializedColumn:
    """Values through the application's own ``serialize``, one at a time."""

    __slots__ = ("_serialize", "_values", "append")

    append: Callable[[Any], None]

    def __init__(self, serialize: Callable[[Any], bytes]):
        self._serialize = serialize
        self._values: list[bytes] = []
        self.append = self.put

    def put(self, value: Any) -> None:
        """Take any value, as it is now."""
        self._values.append(self._serialize(value))

    def take(self) -> list[bytes]:
        """Return the serialized values."""
        values = list(self._values)
        self._values.clear()
        return values


Unpacked = tuple[list[Any], list[Any]]


@dataclass(frozen=True, slots=True)
class Packing:
    """How state objects become bytes (``dumps``, ``loads``), and the events of a block: through a
    ``column`` each, values of ``atomic`` types by its ``append``, all others by its ``put``.
    """

    kind: Kind
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    atomic: frozenset[type[Any]]
    column: Callable[[], Column]
    unpack: Callable[[bytes], Unpacked]


def pack(keys: list[Any], column: Column) -> bytes:
    """Pack a block's keys and values; the column is empty afterwards."""
    return pickle.dumps((keys, column.take()), 5)


def _dumps(value: Any) -> bytes:
    return pickle.dumps(value, 5)


def _unpack_values(packed: bytes) -> Unpacked:
    keys, (values, stream) = pickle.loads(packed)
    if stream is None:
        return keys, values
    pickled = pickle.loads(stream)
    if values is None:
        return keys, pickled
    following = iter(pickled)
    return keys, [next(following) if value is None else value for value in values]


PICKLED = Packing(Kind.VALUES, _dumps, pickle.loads, ATOMIC, ValueColumn, _unpack_values)
FRAMES = Packing(Kind.FRAMES, _dumps, pickle.loads, ATOMIC, FrameColumn, pickle.loads)


def packing_of(serializer: tuple[Any, Any] | None) -> Packing:
    """Return the packing for an application: pickle, or its own ``serialize``/``deserialize``,
    applied to one value at a time.
    """
    if serializer is None:
        return PICKLED
    serialize, deserialize = serializer

    def unpack(packed: bytes) -> Unpacked:
        keys, values = pickle.loads(packed)
        return keys, [deserialize(value) for value in values]

    def column() -> Column:
        return SerializedColumn(serialize)

    return Packing(Kind.SERIALIZED, serialize, deserialize, NOTHING_ATOMIC, column, unpack)
