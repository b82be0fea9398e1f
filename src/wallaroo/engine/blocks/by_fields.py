"""Packing of objects by their fields, faster than pickle.

Invariant: unpacked objects and their fields have exactly the classes of the packed ones. An object
for which this is uncertain is pickled.

The classes are those whose objects are their fields and nothing else: named tuples, dataclasses,
and msgspec's structs, without custom methods for creation or pickling.  Their fields are strings,
bytes, numbers, booleans, or None.  A tuple of such objects and of plain values, as joins emit them,
is identified by its *shape*, the tuple of its values' classes (a nested tuple's class being its
shape).
"""

from __future__ import annotations

import copyreg
import inspect
import marshal
import pickle
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import repeat
from types import MemberDescriptorType, NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

PLAIN = frozenset({str, bytes, int, float, bool})
_NAMES = {each: each.__name__ for each in PLAIN}
PLAIN_OR_NONE = PLAIN | {NoneType}
_MARSHAL_VERSION = 2  # the last version that does not search for repeated values
_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")


class Form(NamedTuple):
    """Conversion of many objects of one class to bytes and back.

    ``accepts`` returns whether an object consists of its fields alone, each of its declared type;
    ``keep`` returns a snapshot for ``pack``, the object itself if ``keeps_itself``. ``pack`` raises
    for numbers beyond 64 bits and text that is not valid UTF-8. Accepted objects of a frozen class
    are immutable. ``condition`` returns the expression that ``accepts`` evaluates for an object of
    a given name, or is None.
    """

    accepts: Callable[[Any], bool]
    keep: Callable[[Any], Any]
    pack: Callable[[list[Any]], bytes]
    unpack: Callable[[bytes], list[Any]]
    is_frozen: bool
    keeps_itself: bool
    condition: Callable[[str], str] | None = None


def cannot_change(value: Any) -> bool:
    """Return whether an object of a frozen class, or a tuple, has only plain fields."""
    cls: Any = shape_of(value) if type(value) is tuple else type(value)
    accepts = _accepts_frozen(cls)
    try:
        return accepts(value)
    except Exception:  # a field without a value
        return False


@lru_cache(maxsize=256)
def _accepts_frozen(cls: Any) -> Callable[[Any], bool]:
    form = form_of(cls)
    return form.accepts if form is not None and form.is_frozen else lambda value: False


def shape_of(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the classes of a tuple's values, and the shapes of tuples among them.

    >>> shape_of((0, ("a", None)))
    (<class 'int'>, (<class 'str'>, <class 'NoneType'>))
    """
    shape = tuple(map(type, value))
    if tuple in shape:
        return tuple(
            [
                shape_of(each) if cls is tuple else cls
                for each, cls in zip(value, shape, strict=True)
            ]
        )
    return shape


@lru_cache(maxsize=256)
def form_of(cls: Any) -> Form | None:
    """Return the form of a class or shape; None if its objects must be pickled."""
    try:
        if isinstance(cls, tuple):
            return _tuples(cls)
        if pickle.loads(pickle.dumps(cls)) is not cls:
            return None
        if is_named_tuple_of_fields(cls):
            return _named_tuples(cls)
        if is_dataclass_of_fields(cls):
            names = [each.name for each in fields(cls)]
            return _typed(cls, names, is_frozen=cls.__dataclass_params__.frozen)
        if is_struct_of_fields(cls):
            return _typed(cls, cls.__struct_fields__, is_frozen=cls.__struct_config__.frozen)
    except Exception:  # inspecting a class may raise anything
        return None
    return None


def is_named_tuple_of_fields(cls: type[Any]) -> bool:
    made_of = getattr(cls.__new__, "__globals__", {})
    return cls.__bases__ == (tuple,) and "_tuple_new" in made_of and _is_pickled_as(tuple, cls)


def is_dataclass_of_fields(cls: Any) -> bool:
    return (
        "__dataclass_fields__" in cls.__dict__
        and not hasattr(cls, "__post_init__")
        and cls.__new__ is object.__new__
        and all(each.init for each in fields(cls))
        and _is_pickled_as(object, cls)
    )


def slots_of(cls: type[Any]) -> tuple[str, ...] | None:
    """Return the slots of a class whose objects pickle as their attributes alone.

    An object without slots is its ``__dict__``. Return None if objects have other parts, or both.
    """
    declared = [vars(each).get("__slots__") for each in cls.__mro__[:-1]]
    names = tuple(name for each in declared if isinstance(each, tuple) for name in each)
    if bool(names) == bool(cls.__dictoffset__) or not _is_pickled_as(object, cls):
        return None
    try:
        probe = object.__new__(cls)
        for name in names or ("field",):
            object.__setattr__(probe, name, 1)
        pickled = probe.__reduce_ex__(2)
    except Exception:  # objects have more than attributes
        return None
    attributes = dict.fromkeys(names or ("field",), 1)
    state = (None, attributes) if names else attributes
    is_plain = pickled == (copyreg.__newobj__, (cls,), state, None, None)  # type: ignore[attr-defined]  # typeshed lacks it
    return names if is_plain else None


def is_struct_of_fields(cls: type[Any]) -> bool:
    is_struct = issubclass(cls, msgspec.Struct) and not hasattr(cls, "__post_init__")
    return is_struct and not cls.__dictoffset__ and _is_pickled_as(msgspec.Struct, cls)


def _is_pickled_as(base: type[Any], cls: type[Any]) -> bool:
    """Return whether a class uses its base's pickling, or that of dataclasses."""
    own = {getattr(cls, name, None) for name in _PICKLING}
    own -= {getattr(base, name, None) for name in _PICKLING}
    is_registered = cls in copyreg.dispatch_table
    return not is_registered and all(
        getattr(each, "__module__", "") == "dataclasses" for each in own
    )


def _named_tuples(cls: type[Any]) -> Form:
    new = tuple.__new__

    def accepts(value: Any) -> bool:
        return PLAIN_OR_NONE.issuperset(map(type, value))

    def pack(values: list[Any]) -> bytes:
        return marshal.dumps(values, _MARSHAL_VERSION)

    def unpack(packed: bytes) -> list[Any]:
        return list(map(new, repeat(cls), marshal.loads(packed)))

    return Form(accepts, tuple, pack, unpack, is_frozen=True, keeps_itself=False)


def _typed(cls: type[Any], names: Sequence[str], *, is_frozen: bool) -> Form:
    """Return the form of objects that msgspec creates without calling the class's code."""
    encode = msgspec.msgpack.Encoder().encode
    raw = msgspec.Raw

    def keep(value: Any) -> Any:
        return raw(encode(value))

    unpack = msgspec.msgpack.Decoder(list[cls]).decode  # type: ignore[valid-type]  # a class
    condition = _conditions(cls, names)
    own = (lambda value: value) if is_frozen else keep
    return Form(_function(condition), own, encode, unpack, is_frozen, is_frozen, condition)


def _tuples(shape: tuple[Any, ...]) -> Form | None:
    """Return the form of tuples that contain frozen objects."""
    conditions: list[tuple[int, Callable[[str], str]]] = []
    for at, cls in enumerate(shape):
        if cls in PLAIN_OR_NONE:
            continue
        form = form_of(cls)
        if form is None or not form.is_frozen or form.condition is None:
            return None
        conditions.append((at, form.condition))

    def condition(o: str) -> str:
        parts = ["True"]
        for at, of_part in conditions:
            part = f"{o}_{at}"
            parts += f"({part} := {o}[{at}]) is {part}", of_part(part)
        return " and ".join(parts)

    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(list[_as_type(shape)]).decode  # type: ignore[misc]  # computed
    return Form(_function(condition), lambda value: value, encode, decode, True, True, condition)


def _as_type(shape: tuple[Any, ...]) -> Any:
    parts = tuple(_as_type(each) if isinstance(each, tuple) else each for each in shape)
    return tuple[parts]  # type: ignore[valid-type]  # computed


def _conditions(cls: type[Any], names: Sequence[str]) -> Callable[[str], str]:
    """Return a function from a name to an expression that checks an object's field types."""
    hints = get_type_hints(cls, include_extras=True)
    parts = [f"len(@.__dict__) == {len(names)}"] if cls.__dictoffset__ else ["True"]
    for name in names:
        own = inspect.getattr_static(cls, name, None)
        is_computed = hasattr(own, "__set__") and type(own) not in _STORED
        if is_computed or name.startswith("_"):  # msgspec ignores private fields
            raise TypeError(f"{name} is not a plain field")
        is_optional = get_origin(hints[name]) in (Union, UnionType)
        kinds = set(get_args(hints[name])) if is_optional else {hints[name]}
        (plain,) = kinds - {NoneType} if is_optional else kinds
        check = f"type(@.{name}) is {_NAMES[plain]}"
        parts.append(f"(@.{name} is None or {check})" if NoneType in kinds else check)
    condition = " and ".join(parts)
    return lambda o: condition.replace("@", o)


def _function(condition: Callable[[str], str]) -> Callable[[Any], bool]:
    made: Callable[[Any], bool] = eval(f"lambda o: {condition('o')}")
    return made


class _Slots(msgspec.Struct):
    field: int


_STORED = (MemberDescriptorType, type(inspect.getattr_static(_Slots, "field")))
