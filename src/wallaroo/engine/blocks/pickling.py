"""Pickling of values, one at a time.

Invariant: any unpickler can read these pickles without this package.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import operator
import pickle
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from wallaroo.engine.blocks.by_fields import (
    PLAIN_OR_NONE,
    form_of,
    is_dataclass_of_fields,
    is_named_tuple_of_fields,
    is_struct_of_fields,
    slots_of,
)

_PROTOCOL = 5
_BEGIN = b"\x80\x05"
_CONTENT = slice(11, -1)  # a pickle without the protocol, the head of its frame, and the end
_FRAME_MAX = 1 << 15  # bytes: larger pickles have several frames
_NEW = b")\x81"  # an object without arguments
_GENERATED = "<string>"  # the file of the methods that dataclasses generate


class Reducers(dict[type[Any], Callable[[Any], Any]]):
    """A pickler's dispatch table with faster reducers.

    Frozen dataclasses with slots look up their fields for each object; here one is pickled as a
    call of its class, which any unpickler understands. For objects with only a ``__dict__``,
    ``object.__reduce_ex__`` looks up methods that they lack.
    """

    def __init__(self, protocol: int):
        super().__init__()
        self._usual = operator.methodcaller("__reduce_ex__", protocol)

    def __missing__(self, cls: type[Any]) -> Callable[[Any], Any]:
        if issubclass(cls, type):
            raise KeyError(cls)  # a class is pickled by its name
        reduce = copyreg.dispatch_table.get(cls) or self._by_call(cls) or _by_dict(cls)
        self[cls] = reduce or self._usual
        return self[cls]

    def _by_call(self, cls: Any) -> Callable[[Any], Any] | None:
        names = _arguments(cls)
        if names is None:
            return None
        if form_of(cls) is not None:  # no field of a plain type leads back to the object
            values = ", ".join(f"o.{name}" for name in names)
            by_call: Callable[[Any], Any] = eval(f"lambda o: (cls, ({values}))", {"cls": cls})
            return by_call
        usual = self._usual
        values_of = operator.attrgetter(*names)

        def reduce(value: Any) -> Any:
            values = values_of(value)
            return (cls, values) if PLAIN_OR_NONE.issuperset(map(type, values)) else usual(value)

        return reduce


def _arguments(cls: type[Any]) -> list[str] | None:
    """Return the names of the arguments of a frozen dataclass with slots; None for others."""
    is_slow = getattr(getattr(cls, "__getstate__", None), "__module__", "") == "dataclasses"
    if not is_slow or not is_dataclass_of_fields(cls) or any(each.kw_only for each in fields(cls)):
        return None
    if cls.__init__.__code__.co_filename != _GENERATED:
        return None
    names = [each.name for each in fields(cls)]
    return None if len(names) < 2 else names  # a getter of one attribute returns no tuple


def _by_dict(cls: type[Any]) -> Callable[[Any], Any] | None:
    if slots_of(cls) != ():
        return None
    create: Any = copyreg.__newobj__  # type: ignore[attr-defined]  # typeshed lacks it
    arguments = (cls,)
    return lambda value: (create, arguments, value.__dict__ or None)


class _Writers(dict[type[Any], Callable[[Any], bytes | None] | None]):
    """Functions by class that pickle objects of plain fields.

    They return None for other objects.

    The pickle of the fields is placed between opcodes that all objects of the class share.
    """

    def __missing__(self, cls: type[Any]) -> Callable[[Any], bytes | None] | None:
        writer = None
        if cls.__module__ != "builtins":
            try:
                writer = _writer_of(cls)
            except Exception:  # inspecting a class may raise anything
                writer = None
        self[cls] = writer
        return writer


def _writer_of(cls: type[Any]) -> Callable[[Any], bytes | None] | None:
    if cls in copyreg.dispatch_table or pickle.loads(pickle.dumps(cls, _PROTOCOL)) is not cls:
        return None
    head = b"%bc%b\n%b\n" % (_BEGIN, cls.__module__.encode(), cls.__qualname__.encode())
    if is_named_tuple_of_fields(cls):
        return _writer(head, lambda value: (tuple(value), value), b"\x81.")
    names = _arguments(cls)
    if names is not None:
        arguments = operator.attrgetter(*names)
        return _writer(head, lambda value: (arguments(value),) * 2, b"R.")
    if is_struct_of_fields(cls):
        parameters = inspect.signature(cls).parameters.values()
        is_called_by_name = any(each.kind is each.KEYWORD_ONLY for each in parameters)
        return None if is_called_by_name else _writer(head, _struct_arguments, b"R.")
    slots = slots_of(cls)
    if slots == ():
        return _writer(head + _NEW, _attributes, b"b.")
    if slots is None or len(slots) == 1:
        return None
    return _writer(head + _NEW, _slots(slots), b"b.")


Parts = tuple[Any, Iterable[Any]]  # an object's reduced form, and its values


def _struct_arguments(value: Any) -> Parts:
    _, arguments = value.__reduce__()
    return arguments, arguments


def _attributes(value: Any) -> Parts:
    attributes = value.__dict__
    return attributes or None, attributes.values()


def _slots(names: tuple[str, ...]) -> Callable[[Any], Parts]:
    values_of = operator.attrgetter(*names)

    def slots(value: Any) -> Parts:
        values = values_of(value)
        return (None, dict(zip(names, values, strict=True))), values

    return slots


def _writer(
    head: bytes, parts_of: Callable[[Any], Parts], end: bytes
) -> Callable[[Any], bytes | None]:
    dumps = pickle.dumps
    are_plain = PLAIN_OR_NONE.issuperset

    def write(value: Any) -> bytes | None:
        try:
            content, values = parts_of(value)
        except AttributeError:  # a field without a value
            return None
        if content is None or not are_plain(map(type, values)):
            return None
        packed = dumps(content, _PROTOCOL)
        return head + packed[_CONTENT] + end if len(packed) < _FRAME_MAX else None

    return write


_REDUCERS = Reducers(_PROTOCOL)
_WRITERS = _Writers()


class _Pickler:
    """Pickler of independent values, like ``pickle.dumps``."""

    __slots__ = ("_buffer", "_clear_memo", "_dump")

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        pickler = pickle.Pickler(self._buffer, _PROTOCOL)
        pickler.dispatch_table = _REDUCERS
        self._dump = pickler.dump
        self._clear_memo = pickler.clear_memo

    def dumps(self, value: Any) -> bytes:
        """Return the pickle of a value; keep no reference to it."""
        buffer = self._buffer
        try:
            self._dump(value)
            return buffer.getvalue()
        finally:
            self._clear_memo()
            buffer.seek(0)
            buffer.truncate()


# a pickler's memo grows with the largest value and is cleared as a whole after each value
KEPT_BYTES_MAX = 1 << 14
_idle_picklers: list[_Pickler] = []  # a pickler that a thread is using is not in the list


def pickled(value: Any) -> bytes:
    """Return a pickle of a value.  Raises any error of pickling it."""
    write = _WRITERS[type(value)]
    packed = None if write is None else write(value)
    if packed is not None:
        return packed
    try:
        pickler = _idle_picklers.pop()
    except IndexError:
        pickler = _Pickler()
    packed = pickler.dumps(value)
    if len(packed) <= KEPT_BYTES_MAX:
        _idle_picklers.append(pickler)
    return packed
