"""State objects of earlier class versions, completed or upgraded on loading.

The invariant: a stored pickled state is a pickle of that very state. A declared class version is
pushed and popped at its start, so that any reader of states can read it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from wallaroo.engine.blocks.packing import PICKLED, Packing
from wallaroo.errors import CheckpointError
from wallaroo.steps.kinds import StateBuilder, Step, state_maker
from wallaroo.steps.state_versions import FIRST, Evolution, evolution_of, version_of
from wallaroo.user_code.stored_fields import fields_of, slots_of, stored_fields

_PICKLE = b"\x80\x05"  # protocol 5
_MARK = struct.Struct("<2scHc")
_PUSH = b"M"  # an int of 2 bytes follows
_POP = b"0"
_LAST_USE = _PICKLE + b"\x8a\x08"  # pushed before the version, see ``ttl_state``
_LAST_USE_BYTES = len(_LAST_USE) + 9

Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes], Any]


def with_version(packed: bytes, version: int) -> bytes:
    """Return a packed state as it is stored.

    >>> import pickle
    >>> stored = with_version(pickle.dumps("state", 5), 2)
    >>> pickle.loads(stored), stored_version(stored)
    ('state', 2)
    """
    return _MARK.pack(_PICKLE, _PUSH, version, _POP) + packed[len(_PICKLE) :]


def stored_version(stored: bytes) -> int:
    """Return the version of the class of a stored state.

    >>> import pickle
    >>> stored_version(pickle.dumps("state", 5))
    1
    """
    # a leading last use replaces the pickle's own first bytes
    at = _LAST_USE_BYTES - len(_PICKLE) if stored.startswith(_LAST_USE) else 0
    if len(stored) < at + _MARK.size:
        return FIRST
    _, push, version, pop = _MARK.unpack_from(stored, at)
    return int(version) if push == _PUSH and pop == _POP else FIRST


def evolving(step: Step, packing: Packing, evolution: Evolution | None) -> tuple[Dumps, Loads]:
    """Return the functions that pack and unpack a step's state objects.

    They are the packing's own unless stored objects may be older than the class.
    """
    cls = getattr(step, "state_class", object)
    version = version_of(cls)
    packing = _without_holder(step, packing)
    loads = packing.loads
    if evolution is not None and evolution.may_lack:
        loads = filling(cls, state_maker(step), packing)
    if version == FIRST or packing.dumps is not PICKLED.dumps:
        return packing.dumps, loads
    upgrades = _Upgrades(cls, version, evolution or evolution_of(cls, False), loads)
    return (lambda state: with_version(packing.dumps(state), version)), upgrades.loads


def _without_holder(step: Step, packing: Packing) -> Packing:
    """Return a packing whose ``loads`` returns the state that an older checkpoint holds."""
    builder: StateBuilder | None = getattr(step, "builder", None)
    if builder is None:
        return packing
    return replace(packing, loads=lambda raw: builder.content_of(packing.loads(raw)))


# -- attributes that are new


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of a new object that stored ones should have."""

    plain: frozenset[str]
    slots: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.plain) + len(self.slots)


@lru_cache(maxsize=256)
def attributes_of(make: Callable[[], Any], dumps: Dumps, loads: Loads) -> Attributes:
    """Return the attributes that a new object has after it was stored.

    A class may omit some and recreate them itself.
    """
    new = make()
    stored = fields_of(loads(dumps(new)))
    slots = tuple(name for name in slots_of(type(new)) if name in stored)
    return Attributes(frozenset(stored) - frozenset(slots), slots)


def filling(cls: Any, make: Callable[[], Any], packing: Packing) -> Loads:
    """Return a function that unpacks an object and adds missing attributes of a new one."""
    loads = packing.loads
    attributes: Attributes | None = None

    def filled(raw: bytes) -> Any:
        nonlocal attributes
        if attributes is None:
            attributes = attributes_of(make, packing.dumps, loads)
        try:
            state = loads(raw)
        except AttributeError:
            is_pickled = packing.dumps is PICKLED.dumps
            state = _without_gone_slots(cls, raw, attributes) if is_pickled else None
            if state is None:
                raise
        missing = missing_of(state, cls, attributes)
        if missing:
            if len(missing) == attributes.count and packing.dumps is PICKLED.dumps:
                read = _of_another_kind(raw, make, attributes)
                if read is not None:
                    return read
            fill(state, make, missing)
        return state

    return filled


def _of_another_kind(raw: bytes, make: Callable[[], Any], attributes: Attributes) -> Any:
    """Rebuild an object from its attributes if it became, or ceased to be, a pydantic model.

    Return None if it has none of a new object's.
    """
    stored = stored_fields(raw)[1]
    names = [name for name in (*attributes.plain, *attributes.slots) if name in stored]
    if not names:
        return None
    state = make()
    for name in names:
        object.__setattr__(state, name, stored[name])
    return state


def outdated(step: Step, packing: Packing, evolution: Evolution) -> Callable[[bytes], bool]:
    """Return a predicate: whether ``evolving`` changes a stored object."""
    cls: Any = getattr(step, "state_class", object)
    version = version_of(cls)
    lacks = lacking(step, packing) if evolution.may_lack else None
    is_versioned = packing.dumps is PICKLED.dumps

    def is_outdated(raw: bytes) -> bool:
        if is_versioned and stored_version(raw) != version:
            return True
        return lacks is not None and lacks(raw)

    return is_outdated


def lacking(step: Step, packing: Packing) -> Callable[[bytes], bool]:
    """Return a predicate: whether an object lacks attributes or cannot be read."""
    cls: Any = getattr(step, "state_class", object)
    packing = _without_holder(step, packing)
    attributes = attributes_of(state_maker(step), packing.dumps, packing.loads)

    def lacks(raw: bytes) -> bool:
        try:
            state = packing.loads(raw)
        except Exception:  # it may have values for slots that are gone
            return True
        return bool(missing_of(state, cls, attributes))

    return lacks


def lacking_all(step: Step, packing: Packing) -> Callable[[Any], bool]:
    """Return a predicate: whether an object has no attribute of a new one."""
    cls: Any = getattr(step, "state_class", object)
    packing = _without_holder(step, packing)
    attributes = attributes_of(state_maker(step), packing.dumps, packing.loads)
    return lambda state: 0 < attributes.count == len(missing_of(state, cls, attributes))


def missing_of(state: Any, cls: type[Any], attributes: Attributes) -> tuple[str, ...]:
    """Return the attributes that an object lacks; empty if it is of another class."""
    if not isinstance(state, cls):
        return ()
    missing = tuple(name for name in attributes.slots if not hasattr(state, name))
    if attributes.plain and not attributes.plain <= vars(state).keys():
        missing += tuple(attributes.plain - vars(state).keys())
    return missing


def fill(state: Any, make: Callable[[], Any], missing: tuple[str, ...]) -> None:
    """Set attributes that an object lacks to those of a new object."""
    new = fields_of(make())
    for name in missing:
        if name in new:
            object.__setattr__(state, name, new[name])  # a class may restrict its own


def _without_gone_slots(cls: type[Any], raw: bytes, attributes: Attributes) -> Any:
    """Return an object without slots that its class dropped; None if there are none."""
    name, fields = stored_fields(raw)
    if not attributes.slots or name.rpartition(".")[2] != cls.__name__:
        return None
    state: Any = object.__new__(cls)
    for slot in attributes.slots:
        if slot in fields:
            object.__setattr__(state, slot, fields[slot])
    return state


# -- objects of an older version


class _Upgrades:
    """Reader of state objects whose class declares a version."""

    def __init__(self, cls: type[Any], version: int, evolution: Evolution, loads: Loads):
        self._class = cls
        self._version = version
        self._loads = loads
        self._upgrades = dict(evolution.upgrades)
        self._orders = dict(evolution.orders)

    def loads(self, raw: bytes) -> Any:
        """Return the object, upgraded if it is of an older version."""
        version = stored_version(raw)
        return self._loads(raw) if version == self._version else self._upgraded(raw, version)

    def _upgraded(self, raw: bytes, version: int) -> Any:
        name = self._class.__name__
        if version > self._version:
            raise CheckpointError(
                f"it was stored by version {version} of {name}, which is version {self._version} "
                f"here. Run the newer application."
            )
        upgrade = self._upgrades.get(version)
        if upgrade is None:
            raise CheckpointError(
                f"it was stored by version {version} of {name}, which is version {self._version} "
                f"now. Write @wallaroo.upgrade({name}, from_version={version})."
            )
        state = upgrade.function(stored_fields(raw, self._orders.get(version, ()))[1])
        if not isinstance(state, self._class):
            raise CheckpointError(f"the upgrade returned {state!r}, not a {name}")
        return state
