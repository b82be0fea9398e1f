"""Expiring state of a step, with times of last use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.packing import Packing
from wallaroo.engine.stores.keyed_state import BulkRead, KeyedState, Read
from wallaroo.engine.stores.last_use import NEVER, last_use_of, with_last_use
from wallaroo.steps.kinds import Step
from wallaroo.steps.state_versions import Evolution


class TTLState(KeyedState):
    """State objects of an expiring step.

    ``last_use``: the keys used in this batch.
    """

    def __init__(
        self,
        step: Step,
        read: Read,
        packing: Packing,
        evolution: Evolution | None = None,
        *,
        marks_uses: bool = False,
    ):
        super().__init__(step, self._read_once, packing, evolution)
        self._marks_uses = marks_uses
        self.last_use: dict[Key, int] = {}
        self._read_stored = read
        self._read_many = read.many if isinstance(read, BulkRead) else None

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
        """Return when a key was last used before the batch; None without state or time."""
        stored = self._read_once(key)
        return None if stored is None else last_use_of(stored, is_marked=self._marks_uses)

    def used_ns(self, key: Key) -> int | None:
        """Return when a key was last used; None without state or time."""
        used_ns = self.last_use.get(key)
        if used_ns is None and key not in self._dropped:
            return self.stored_use(key)
        return used_ns

    def drop(self, key: Key) -> None:
        """Remove a key's state; its next event sees a new object."""
        super().drop(key)
        self.last_use.pop(key, None)

    def changes(self) -> Iterator[tuple[Key, bytes | None]]:
        """Yield the states to write, as ``KeyedState`` does."""
        for key, state in self.live.items():
            used_ns = self.used_ns(key)
            stored_ns = NEVER if used_ns is None else used_ns
            raw = with_last_use(
                self.packed(key, state), stored_ns, self._is_pickled, is_marked=self._marks_uses
            )
            if raw != self._stored.get(key):
                yield key, raw
        yield from self.removed()


def keyed_state_of(
    step: Step,
    read: Read,
    packing: Packing,
    evolution: Evolution | None = None,
    *,
    marks_uses: bool = False,
) -> KeyedState:
    if step.has_expiring_state:
        return TTLState(step, read, packing, evolution, marks_uses=marks_uses)
    return KeyedState(step, read, packing, evolution)
