"""States of a step whose state expires, with times of last use.

Invariant: the stored form of a pickled state is a pickle of that very state.  The time is pushed
and popped again at its beginning, so that all readers of states can read these as well, and an
expiry finds the time without unpickling the state.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.ordered_keys import TIME_MIN
from wallaroo.engine.blocks.packing import PICKLED, Packing
from wallaroo.engine.stores.keyed_state import BulkRead, KeyedState, Read
from wallaroo.steps.kinds import Step
from wallaroo.steps.state_versions import Evolution

_PICKLE = b"\x80\x05"  # protocol 5
_HEAD = struct.Struct("<4sqc")
_PUSHED = _PICKLE + b"\x8a\x08"  # an int of 8 bytes follows
_POP = b"0"
_NEVER = TIME_MIN


def with_last_use(packed: bytes, used_ns: int) -> bytes:
    """Return a packed state as it is stored.

    >>> import pickle
    >>> pickle.loads(with_last_use(pickle.dumps("state", 5), 7))
    'state'
    """
    body = packed[len(_PICKLE) :] if packed.startswith(_PICKLE) else packed
    return _HEAD.pack(_PUSHED, used_ns, _POP) + body


def last_use_of(stored: bytes) -> int | None:
    """Return the time of a stored state's last use; None if no event used it."""
    used_ns: int = _HEAD.unpack_from(stored)[1]
    return None if used_ns == _NEVER else used_ns


def without_last_use(stored: bytes) -> bytes:
    """Return the packed state without its last use; unchanged if it does not expire."""
    is_ours = stored.startswith(_PUSHED) and stored[_HEAD.size - 1 : _HEAD.size] == _POP
    return stored[_HEAD.size :] if is_ours else stored


class TTLState(KeyedState):
    """State objects of a step whose state expires; ``last_use``: the keys used in this batch."""

    def __init__(
        self, step: Step, read: Read, packing: Packing, evolution: Evolution | None = None
    ):
        super().__init__(step, self._read_once, packing, evolution)
        self.last_use: dict[Key, int] = {}
        self._read_stored = read
        self._read_many = read.many if isinstance(read, BulkRead) else None
        if packing.loads is not PICKLED.loads:
            loads = self._loads
            self._loads = lambda stored: loads(without_last_use(stored))

    def _read_once(self, key: Key) -> bytes | None:
        """Read the state of a key as of the last commit."""
        try:
            return self._stored[key]
        except KeyError:
            raw = self._stored[key] = self._read_stored(key)
            return raw

    def read_ahead(self, group: int, keys: Mapping[bytes, Key]) -> None:
        """Read states of one group's keys, encoded; cheaper than one by one."""
        if self._read_many is not None:
            unread = {encoded: key for encoded, key in keys.items() if key not in self._stored}
            self._stored.update(self._read_many(group, unread))

    def stored_use(self, key: Key) -> int | None:
        """Return when a key was last used before the batch; None if it has no state."""
        stored = self._read_once(key)
        return None if stored is None else last_use_of(stored)

    def used_ns(self, key: Key) -> int | None:
        """Return when a key was last used; None if it has no state."""
        used_ns = self.last_use.get(key)
        if used_ns is None and key not in self._dropped:
            return self.stored_use(key)
        return used_ns

    def drop(self, key: Key) -> None:
        """Remove the state of a key; its next event meets a new object."""
        super().drop(key)
        self.last_use.pop(key, None)

    def changes(self) -> Iterator[tuple[Key, bytes | None]]:
        """Yield the states to write, as ``KeyedState`` does."""
        for key, state in self.live.items():
            used_ns = self.used_ns(key)
            raw = with_last_use(self.packed(key, state), _NEVER if used_ns is None else used_ns)
            if raw != self._stored.get(key):
                yield key, raw
        yield from self.removed()


def keyed_state_of(
    step: Step, read: Read, packing: Packing, evolution: Evolution | None = None
) -> KeyedState:
    kind = TTLState if step.has_expiring_state else KeyedState
    return kind(step, read, packing, evolution)
