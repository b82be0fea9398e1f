"""Packing of state objects and of a block's events into bytes.

Invariants of packing:

* A value is packed when it is emitted.  Later changes to the object, by the function that returned
  it or through the state that refers to it, do not change what was emitted.
* No two events of a block share a mutable object, so results do not depend on which events share a
  block.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, Protocol

from wallaroo.engine.blocks.by_fields import PLAIN, Form, form_of, shape_of
from wallaroo.engine.blocks.pickling import Reducers, pickled

# immutable values, kept as they are until their block is full; not None, which marks the place of a
# pickled value in a column
ATOMIC = PLAIN
NOTHING_ATOMIC: frozenset[type[Any]] = frozenset()
# number of event classes per block that take two bytes per reference; others cost their name per
# event
CLASSES_MAX = 16
# opcodes of protocol 3, the last one that numbers its memo explicitly and has no frames
_PROTOCOL = 3
_REDUCERS = Reducers(_PROTOCOL)
_MARSHAL_VERSION = 2
KEYS_AGAIN = None, None  # instead of a ``ValueColumn``'s list and stream
_BEGIN_LIST = b"\x80\x03]("
_END_LIST = b"e."
_POP = b"0"


class Kind(Enum):
    """Encodings of the values of a block."""

    VALUES = "values"  # events, pickled
    FRAMES = "frames"  # payloads that are not decoded yet
    SERIALIZED = "serialized"  # events, by the application's own serialize
    COLUMNS = "columns"  # rows as columns (``engine.columns``)
    ACCUMULATORS = "accumulators"  # partial accumulators of windows instead of their events


class Atoms(Protocol):
    """A collector of values of atomic types."""

    def append(self, value: Any, /) -> None:
        """Append one."""


class Column(Protocol):
    """Values of a block being filled, packed as they are added."""

    @property
    def atoms(self) -> Atoms:
        """Return the collector of atomic values, the same object for the column's life."""

    def put(self, value: Any, /) -> None:
        """Accept any value. Raises any packing error, leaving the column unchanged."""

    def take(self) -> Any:
        """Return the input of ``unpack``, and reset the column."""

    def take_values(self) -> list[Any] | None:
        """Return the values and reset, if all are immutable; else return None."""

    def keep(self, places: list[int], /) -> bool:
        """Keep only the values at these places; return False if any is already packed."""


class PickleStream:
    """Values pickled one by one into a single pickle of their list.

    Each is pickled separately.  The pickler's memo is cleared between values except for classes, so
    values share no objects, yet refer to their class by two bytes.  Its memo is reset for each
    value; explicit memo numbers (protocol 3) let one ``loads`` read all values.
    """

    __slots__ = ("_buffer", "_classes", "_end", "_memo", "_pickler")

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._pickler = pickle.Pickler(self._buffer, _PROTOCOL)
        self._pickler.dispatch_table = _REDUCERS
        self._classes: set[type[Any]] = set()
        self._memo: dict[int, tuple[int, Any]] = {}
        self._end = self._buffer.write(_BEGIN_LIST)

    def add(self, value: Any) -> None:
        """Pickle one value. Raises any pickling error, leaving the stream unchanged."""
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
        """Write the class before its first value, so that all values may refer to it."""
        self._classes.add(cls)
        if len(self._memo) >= CLASSES_MAX or cls.__module__ == "builtins":
            return
        self._pickler.memo = self._memo
        try:
            self._pickler.dump(cls)
        except Exception:
            # the value may still be picklable; otherwise the pickler raises the error itself
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
        """Return the pickle of the list of values, None if empty; reset."""
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


class FieldsColumn:
    """Objects of one class packed by field.

    ``mark`` is the placeholder of each.
    """

    __slots__ = ("_pack", "accepts", "append", "is_lasting", "keep", "mark", "values")

    def __init__(self, form: Form, number: int):
        self.values: list[Any] = []
        self.mark = [number]
        self.append = self.values.append
        self.accepts = form.accepts
        self.keep = form.keep
        self._pack = form.pack
        self.is_lasting = form.keeps_itself

    def take(self) -> Any:
        """Return the objects, packed if possible; reset."""
        values = list(self.values)
        self.values.clear()
        try:
            return self._pack(values)
        except Exception:  # immutable objects with values that only pickle can pack
            return values


class ValueColumn:
    """Values by class.

    Atomic values are in a list, others in their class's column or in a stream.

    In the list, None is the stream's next value, and a mark for its column's next.
    """

    __slots__ = ("_add", "_columns", "_stream", "_streamed", "atoms")

    def __init__(self) -> None:
        self.atoms: list[Any] = []
        self._columns: dict[Any, FieldsColumn | None] = {}  # by class, or a tuple's shape
        self._stream = PickleStream()
        self._add = self._stream.add
        self._streamed = 0

    def put(self, value: Any) -> None:
        """Accept any value, in its current state."""
        cls: Any = type(value)
        if cls is tuple:
            cls = tuple(map(type, value))
            if ATOMIC.issuperset(cls):
                self.atoms.append(value)
                return
            if tuple in cls:
                cls = shape_of(value)
        column = self._columns[cls] if cls in self._columns else self._open(cls)
        if column is not None:
            try:
                is_packed = column.accepts(value)
                if is_packed:
                    column.append(value if column.is_lasting else column.keep(value))
            except Exception:  # a field without a value, or a value that only pickle can pack
                is_packed = False
            if is_packed:
                self.atoms.append(column.mark)
                return
        self._add(value)
        self._streamed += 1
        self.atoms.append(None)

    def _open(self, cls: Any) -> FieldsColumn | None:
        if len(self._columns) >= CLASSES_MAX:
            return None
        form = form_of(cls)
        column = None if form is None else FieldsColumn(form, len(self._columns))
        self._columns[cls] = column
        return column

    def take(self) -> tuple[Any, ...]:
        """Return the list (None if all values are in the stream), the stream, and the columns.

        A column is its number, its class, and its objects, packed or in a list.
        """
        filled = [(cls, each) for cls, each in self._columns.items() if each and each.values]
        marked = self._streamed + sum(len(each.values) for _, each in filled)
        is_mixed = len(self.atoms) > marked or len(filled) + bool(self._streamed) > 1
        values = list(self.atoms) if is_mixed or not self.atoms else None
        self.atoms.clear()
        self._streamed = 0
        columns = [(each.mark[0], cls, each.take()) for cls, each in filled]
        stream = self._stream.take()
        return (values, stream, columns) if columns else (values, stream)

    def take_values(self) -> list[Any] | None:
        filled = [each for each in self._columns.values() if each and each.values]
        if self._streamed or not all(each.is_lasting for each in filled):
            return None
        if len(filled) == 1 and len(filled[0].values) == len(self.atoms):
            values = list(filled[0].values)
        else:
            values = _filled(self.atoms, [], {each.mark[0]: each.values for each in filled})
        self.atoms.clear()
        for each in filled:
            each.values.clear()
        return values

    def keep(self, places: list[int]) -> bool:
        if self._streamed:
            return False
        values = list(self.atoms)
        columns = [each for each in self._columns.values() if each and each.values]
        objects = _filled(values, [], {each.mark[0]: list(each.values) for each in columns})
        self.atoms[:] = [values[place] for place in places]
        for each in columns:
            each.values[:] = [objects[place] for place in places if values[place] is each.mark]
        return True


class ListColumn:
    """Values kept unchanged until their block is full; none is dropped."""

    __slots__ = ("atoms", "put")

    def __init__(self) -> None:
        self.atoms: list[Any] = []
        self.put: Callable[[Any], None] = self.atoms.append

    def take_values(self) -> list[Any]:
        values = list(self.atoms)
        self.atoms.clear()
        return values

    def keep(self, places: list[int]) -> bool:
        """Return False: decoding may filter a payload."""
        return False


class FrameColumn(ListColumn):
    """Payloads: bytes, which cannot change.

    Each is a distinct object, so a pickler's memo is useless: ``marshal`` takes half the time.
    Version 2 of its format is the last without references.
    """

    __slots__ = ()

    def take(self) -> bytes:
        """Return the payloads, packed."""
        payloads = marshal.dumps(self.atoms, _MARSHAL_VERSION)
        self.atoms.clear()
        return payloads


class SerializedColumn:
    """Values through the application's own ``serialize``, one at a time."""

    __slots__ = ("_serialize", "_values")

    def __init__(self, serialize: Callable[[Any], bytes]):
        self._serialize = serialize
        self._values: list[bytes] = []

    @property
    def atoms(self) -> SerializedColumn:
        return self

    def append(self, value: Any) -> None:
        """Accept a value as ``put`` does: no type is atomic."""
        self.put(value)

    def put(self, value: Any) -> None:
        """Accept any value, in its current state."""
        self._values.append(self._serialize(value))

    def take(self) -> list[bytes]:
        """Return the serialized values."""
        values = list(self._values)
        self._values.clear()
        return values

    def take_values(self) -> None:
        """Return None: an application's own function may change what it returns."""

    def keep(self, places: list[int]) -> bool:
        self._values[:] = [self._values[place] for place in places]
        return True


class AccumulatorColumn(ListColumn):
    """Accumulators, to which nothing else refers.

    They are pickled together when their block is full, in an eighth of the time.
    ``not_packed`` raises the error of one that cannot be pickled.
    """

    __slots__ = ("_not_packed",)

    def __init__(self, not_packed: Callable[[Any, BaseException], None]):
        super().__init__()
        self._not_packed = not_packed

    def take(self) -> bytes:
        """Return the accumulators, packed."""
        accumulators = self.take_values()
        try:
            return pickled(accumulators)
        except Exception:
            for accumulator in accumulators:
                try:
                    pickled(accumulator)
                except BaseException as error:
                    self._not_packed(accumulator, error)
            raise


Unpacked = tuple[list[Any], list[Any]]


@dataclass(frozen=True, slots=True)
class Packing:
    """Conversion of state objects and a block's events to bytes, and back.

    State objects go through ``dumps`` and ``loads``.  Each block's events go through a ``column``:
    values of ``atomic`` types into its ``atoms``, others through its ``put``.
    """

    kind: Kind
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    atomic: frozenset[type[Any]]
    column: Callable[[], Column]
    unpack: Callable[[bytes], Unpacked]


def pack(keys: list[Any], column: Column, has_numbers: bool = True) -> bytes:
    """Pack a block's keys and values; the column is empty afterwards.

    Values that are the keys themselves are not packed again, unless keys are numbers, because 1,
    True and 1.0 are equal.
    """
    content = column.take()
    if not has_numbers and content == (keys, None):
        content = KEYS_AGAIN
    return pickle.dumps((keys, content), 5)


def _unpack_values(packed: bytes) -> Unpacked:
    keys, (values, stream, *columns) = pickle.loads(packed)
    if not columns and stream is None:
        return keys, keys if values is None else values
    pickled = [] if stream is None else pickle.loads(stream)
    if not columns:
        return keys, pickled if values is None else _filled(values, pickled, {})
    objects = {number: _unpack_objects(cls, packed) for number, cls, packed in columns[0]}
    if values is None:
        return keys, next(iter(objects.values()))
    return keys, _filled(values, pickled, objects)


def _unpack_objects(cls: Any, packed: Any) -> list[Any]:
    form = form_of(cls)
    return packed if form is None or type(packed) is list else form.unpack(packed)


def _filled(values: list[Any], pickled: list[Any], objects: dict[int, list[Any]]) -> list[Any]:
    """Return values with marks replaced by their objects."""
    following = iter(pickled)
    if not objects:
        return [next(following) if value is None else value for value in values]
    of_column = {number: iter(each) for number, each in objects.items()}
    return [
        next(following)
        if value is None
        else next(of_column[value[0]])
        if type(value) is list
        else value
        for value in values
    ]


def _unpack_frames(packed: bytes) -> Unpacked:
    keys, payloads = pickle.loads(packed)
    return keys, marshal.loads(payloads)


PICKLED = Packing(Kind.VALUES, pickled, pickle.loads, ATOMIC, ValueColumn, _unpack_values)
FRAMES = Packing(Kind.FRAMES, pickled, pickle.loads, ATOMIC, FrameColumn, _unpack_frames)


def _unpack_accumulators(packed: bytes) -> Unpacked:
    keys, content = pickle.loads(packed)
    return keys, pickle.loads(content)


def unpack_accumulators(packing: Packing) -> Callable[[bytes], Unpacked]:
    """Return the ``unpack`` of accumulators in an application with this packing."""
    return packing.unpack if packing.kind is Kind.SERIALIZED else _unpack_accumulators


def accumulators(packing: Packing, not_packed: Callable[[Any, BaseException], None]) -> Packing:
    """Return the packing of accumulators in an application with this one."""
    is_own = packing.kind is Kind.SERIALIZED
    return replace(
        packing,
        kind=Kind.ACCUMULATORS,
        column=packing.column if is_own else partial(AccumulatorColumn, not_packed),
        unpack=unpack_accumulators(packing),
    )


def packing_of(serializer: tuple[Any, Any] | None) -> Packing:
    """Return an application's packing, per value: pickle, or ``serialize``/``deserialize``."""
    if serializer is None:
        return PICKLED
    serialize, deserialize = serializer

    def unpack(packed: bytes) -> Unpacked:
        keys, values = pickle.loads(packed)
        return keys, [deserialize(value) for value in values]

    def column() -> Column:
        return SerializedColumn(serialize)

    return Packing(Kind.SERIALIZED, serialize, deserialize, NOTHING_ATOMIC, column, unpack)
