"""Ordered entries of one step in one batch, each stored separately.

They are those of one task.

Invariant: reads see the committed entries with the batch's own changes on top; nothing is written
before the batch's end, when ``changes`` yields the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

from wallaroo.dataflow.plan.model import ENTRY_KINDS
from wallaroo.engine.blocks.keys import Key, group_of_key, homes, locate
from wallaroo.engine.blocks.ordered_keys import (
    KEY_BYTES_MAX,
    Sub,
    decode_sub,
    encode_sub,
    entry_key,
    join_key,
    key_prefix,
    split_entry,
)

# key group, stored key, value (None: removed)
Change = tuple[int, bytes, bytes | None]
# key group, encoded key, stored key, and the value of the last commit (None: there is none)
Committed = tuple[int, bytes, bytes, bytes | None]
Unreadable = Callable[[Exception], NoReturn]  # accepts the error of a stored value's class
_, ENTRIES, DUE, DUE_PROCESSING, EXPIRY = ENTRY_KINDS


def namespace(step: str, kind: str) -> str:
    """Return the name in the step table under which entries of a step are stored."""
    return f"{step}: {kind}"


def raised(error: Exception) -> NoReturn:
    """Raise the error unchanged."""
    raise error


class EntryReader(Protocol):
    """Committed entries of one namespace, readable by a task."""

    def get(self, group: int, stored: bytes) -> bytes | None:
        """Return one entry's value."""

    def scan(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield stored key and value from ``low`` up to, not including, ``high``, in order."""

    def scan_each(
        self, group: int, prefixes: Sequence[bytes]
    ) -> Iterable[tuple[bytes, bytes, bytes]]:
        """Return prefix, stored key and value of the entries with any of these prefixes.

        Prefixes are in order; entries within one may be in any order.
        """


class NothingStored:
    """An empty EntryReader."""

    def get(self, group: int, stored: bytes) -> bytes | None:
        return None

    def scan(self, group: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def scan_each(
        self, group: int, prefixes: Sequence[bytes]
    ) -> Iterable[tuple[bytes, bytes, bytes]]:
        return ()


class Groups(NamedTuple):
    """A task's key groups, ``first`` to before ``end``, out of ``of``."""

    first: int
    end: int
    of: int

    def locate(self, key: Key) -> tuple[int, bytes]:
        """Return a key's group and its encoded form."""
        return locate(key, self.of)

    def home(self, key: Key) -> Key:
        """Return the key under which the entries of a key's whole group are stored."""
        return homes(self.of)[group_of_key(key, self.of)]


class SortedState:
    """Values by key and sub.

    ``live`` holds the ones touched so far, by (key, sub): a step may check it first.

    A value may be changed in place after ``get`` or ``put``: it is packed at the batch's end.
    """

    def __init__(
        self,
        reader: EntryReader,
        groups: Groups,
        dumps: Callable[[Any], bytes],
        loads: Callable[[bytes], Any],
        unreadable: Unreadable = raised,
    ):
        self.live: dict[tuple[Key, Sub], Any] = {}
        self._stored: dict[tuple[Key, Sub], Committed] = {}
        self._packed: dict[tuple[Key, Sub], bytes] = {}  # read, but not yet requested by ``get``
        self._touched: dict[Key, list[Sub]] = {}
        self._complete: set[Key] = set()  # keys whose committed entries were all read
        self._reader = reader
        self._groups = groups
        self._dumps = dumps
        self._loads = loads
        self._unreadable = unreadable

    def get(self, key: Key, sub: Sub) -> Any:
        """Return the value; None if there is none."""
        place = key, sub
        value = self.live.get(place)
        if value is None:
            if place in self._stored:
                raw = self._packed.pop(place, None)  # None: deleted, or never stored
            else:
                raw = self._read(place)
            if raw is not None:
                try:
                    value = self.live[place] = self._loads(raw)
                except Exception as error:
                    self._unreadable(error)
        return value

    def peek(self, key: Key, sub: Sub) -> Any:
        """Return the committed value, or None; read-only, as it is not written again."""
        place = key, sub
        if place not in self._stored:
            raw = self._read(place)
            if raw is not None:
                self._packed[place] = raw
        packed = self._packed.get(place)
        if packed is None:
            return None
        try:
            return self._loads(packed)
        except Exception as error:
            self._unreadable(error)

    def put(self, key: Key, sub: Sub, value: Any) -> None:
        """Set the value, which is not None."""
        place = key, sub
        if place not in self._stored:
            self._read(place)
        self._packed.pop(place, None)
        self.live[place] = value

    def add(self, key: Key, sub: Sub, value: Any) -> None:
        """Set the value of an absent entry."""
        place = key, sub
        group, encoded = self._groups.locate(key)
        self._note(place, (group, encoded, entry_key(encoded, sub), None))
        self.live[place] = value

    def delete(self, key: Key, sub: Sub) -> None:
        """Remove the entry, if present."""
        place = key, sub
        if place not in self._stored:
            self._read(place)
        self._packed.pop(place, None)
        self.live.pop(place, None)

    def between(self, key: Key, low: Sub, high: Sub) -> Iterator[tuple[Sub, Any]]:
        """Yield a key's committed values from one sub up to, not including, another, in order.

        They are read-only, like those of ``peek``; removed ones are omitted.
        """
        group, encoded = self._groups.locate(key)
        prefix = key_prefix(encoded)
        scanned = self._reader.scan(group, prefix + encode_sub(low), prefix + encode_sub(high))
        for stored, value in scanned:
            sub = decode_sub(stored, len(prefix))
            place = key, sub
            if place not in self._stored:
                self._found(place, group, encoded, stored, value)
            packed = self._packed.get(place)
            if packed is not None:
                try:
                    value = self._loads(packed)
                except Exception as error:
                    self._unreadable(error)
                yield sub, value

    def scan(self, key: Key) -> Iterator[tuple[Sub, Any]]:
        """Yield a key's entries in the order of subs, without those put meanwhile."""
        for sub in self.subs(key):
            value = self.get(key, sub)
            if value is not None:
                yield sub, value

    def subs(self, key: Key) -> list[Sub]:
        """Return the subs of a key's entries, in order; values are unpacked on request."""
        self.find_all((key,))
        subs = {
            encode_sub(sub): sub
            for sub in self._touched.get(key, ())
            if (key, sub) in self.live or (key, sub) in self._packed
        }
        return [subs[encoded] for encoded in sorted(subs)]

    def find_all(self, keys: Iterable[Key]) -> None:
        """Read all committed entries of keys at once; no further lookup follows in this batch."""
        wanted: dict[int, dict[bytes, tuple[Key, bytes]]] = {}
        for key in keys:
            if key not in self._complete:
                group, encoded = self._groups.locate(key)
                wanted.setdefault(group, {})[key_prefix(encoded)] = key, encoded
                self._complete.add(key)
        for group, prefixes in wanted.items():
            for prefix, stored, value in self._reader.scan_each(group, sorted(prefixes)):
                key, encoded = prefixes[prefix]
                place = key, decode_sub(stored, len(prefix))
                if place not in self._stored:
                    self._found(place, group, encoded, stored, value)

    def _read(self, place: tuple[Key, Sub]) -> bytes | None:
        key, sub = place
        group, encoded = self._groups.locate(key)
        stored = entry_key(encoded, sub)
        raw = None if key in self._complete else self._reader.get(group, stored)
        if raw is not None and len(encoded) > KEY_BYTES_MAX:
            raw = split_entry(stored, raw)[2]
        self._note(place, (group, encoded, stored, raw))
        return raw

    def _found(
        self, place: tuple[Key, Sub], group: int, encoded: bytes, stored: bytes, value: bytes
    ) -> None:
        """Record a committed entry found by a scan."""
        raw = value if len(encoded) <= KEY_BYTES_MAX else split_entry(stored, value)[2]
        self._packed[place] = raw
        self._note(place, (group, encoded, stored, raw))

    def _note(self, place: tuple[Key, Sub], committed: Committed) -> None:
        self._stored[place] = committed
        self._touched.setdefault(place[0], []).append(place[1])

    def changes(self) -> Iterator[Change]:
        """Yield the changes to write, once; each value is released when it is packed."""
        for place, (group, encoded, stored, raw) in self._stored.items():
            if place in self._packed:
                continue
            value = self.live.pop(place, None)
            if value is not None:
                try:
                    now = self._dumps(value)
                except AttributeError as error:  # a stored event lacks a new field with a slot
                    self._unreadable(error)
                if now != raw:
                    yield group, stored, join_key(encoded, now)
            elif raw is not None:
                yield group, stored, None

    def release(self) -> None:
        """Release all entries: the batch is over."""
        for touched in (self.live, self._stored, self._packed, self._touched, self._complete):
            touched.clear()
