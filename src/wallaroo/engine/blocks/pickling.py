"""Pickling of values, one at a time.

Invariant: any unpickler reads what is pickled here; it needs nothing of this package.
"""

from __future__ import annotations

import copyreg
import io
import operator
import pickle
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from wallaroo.engine.blocks.by_fields import PLAIN_OR_NONE, is_dataclass_of_fields

_PROTOCOL = 5
_GENERATED = "<string>"  # the file of the methods that dataclasses generate


class Reducers(dict[type[Any], Callable[[Any], Any]]):
    """A pickler's dispatch table in which frozen dataclasses with slots have less to do.

    Their own methods look for the fields again for each object.  Here one is pickled as a call of
    its class, which any unpickler understands.
    """

    def __init__(self, protocol: int):
        super().__init__()
        self._usual = operator.methodcaller("__reduce_ex__", protocol)

    def __missing__(self, cls: type[Any]) -> Callable[[Any], Any]:
        if issubclass(cls, type):
            raise KeyError(cls)  # a class is pickled by its name
        reduce = copyreg.dispatch_table.get(cls) or self._by_call(cls) or self._usual
        self[cls] = reduce
        return reduce

    def _by_call(self, cls: type[Any]) -> Callable[[Any], Any] | None:
        is_slow = getattr(getattr(cls, "__getstate__", None), "__module__", "") == "dataclasses"
        if (
            not is_slow
            or not is_dataclass_of_fields(cls)
            or any(each.kw_only for each in fields(cls))
        ):
            return None
        if cls.__init__.__code__.co_filename != _GENERATED:
            return None
        names = [each.name for each in fields(cls)]
        if len(names) < 2:  # then it returns no tuple
            return None
        values_of: Callable[[Any], tuple[Any, ...]] = operator.attrgetter(*names)
        usual = self._usual

        def reduce(value: Any) -> Any:
            values = values_of(value)
            return (cls, values) if PLAIN_OR_NONE.issuperset(map(type, values)) else usual(value)

        return reduce


_REDUCERS = Reducers(_PROTOCOL)


class _Pickler:
    """A pickler of one value after the other, each by itself, as ``pickle.dumps`` does."""

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


# the memo of a pickler grows with the largest value, and is cleared, whole, after each one
KEPT_BYTES_MAX = 1 << 14
_idle_picklers: list[_Pickler] = []  # a pickler that a thread is using is not in the list


def pickled(value: Any) -> bytes:
    try:
        pickler = _idle_picklers.pop()
    except IndexError:
        pickler = _Pickler()
    packed = pickler.dumps(value)
    if len(packed) <= KEPT_BYTES_MAX:
        _idle_picklers.append(pickler)
    return packed
