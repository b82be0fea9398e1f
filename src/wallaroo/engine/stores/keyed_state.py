"""State objects of one state step in one task of one batch.

Objects are created lazily, live for the batch, and are pickled once at its end; unchanged ones are
not written, and dropped ones are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from wallaroo.engine.blocks.keys import Key
from wallaroo.engine.blocks.packing import PICKLED, Packing
from wallaroo.engine.failures.error_context import blame, blame_stored_state, shorten
from wallaroo.engine.stores.evolution import evolving
from wallaroo.engine.stores.last_use import without_last_use
from wallaroo.steps.kinds import Step, state_maker
from wallaroo.steps.state_versions import Evolution
from wallaroo.user_code.pickling_diagnosis import unpicklable_part

Read = Callable[[Key], bytes | None]


@runtime_checkable
class BulkRead(Protocol):
    """``Read`` with a cheaper bulk read of one key group."""

    def __call__(self, key: Key) -> bytes | None:
        """Return the stored state of one key."""

    def many(self, group: int, keys: Mapping[bytes, Key]) -> Iterator[tuple[Key, bytes | None]]:
        """Yield the stored states of keys, which are given by their encoded form."""


class KeyedState:
    """A step's state by key.

    ``live``: touched states; ``load`` adds one, ``drop`` removes it.
    """

    def __init__(
        self, step: Step, read: Read, packing: Packing, evolution: Evolution | None = None
    ):
        self.step = step
        self.live: dict[Key, Any] = {}
        self._stored: dict[Key, bytes | None] = {}  # as of the last commit, of every touched key
        self._dropped: dict[Key, None] = {}  # in the order of dropping
        self._read = read
        self._dumps, loads = evolving(step, packing, evolution)
        # the pickle itself pops a last use
        self._is_pickled = packing.loads is PICKLED.loads
        self._loads = loads if self._is_pickled else lambda stored: loads(without_last_use(stored))
        self._make = state_maker(step)

    def load(self, key: Key) -> Any:
        """Return the key's state, as stored or new; raise UserCodeError if its class fails."""
        raw = None
        if key not in self._dropped:
            raw = self._stored[key] = self._read(key)
        try:
            state = self._make() if raw is None else self._loads(raw)
        except BaseException as error:
            if raw is not None:
                blame_stored_state(self.step, key, error)
            blame(self.step, f"state of key {shorten(key)}", error)
        self.live[key] = state
        return state

    def upgrade(self, key: Key) -> None:
        """Load a key's stored state for writing, unless the batch already has."""
        if key not in self.live and key not in self._dropped:
            self.load(key)

    def drop(self, key: Key) -> None:
        """Remove a key's state; its next event sees a new object."""
        self.live.pop(key, None)
        self._dropped[key] = None

    def has(self, key: Key) -> bool:
        """Return whether the key has state now."""
        return key in self.live or (key not in self._dropped and self._read(key) is not None)

    def is_dropped(self, key: Key) -> bool:
        """Return whether the key's stored state was dropped in this batch."""
        return key in self._dropped

    def changes(self) -> Iterator[tuple[Key, bytes | None]]:
        """Yield key and pickled state of every touched key whose bytes have changed.

        They are compared with the stored ones. The bytes are None if a stored state was dropped.
        """
        for key, state in self.live.items():
            raw = self.packed(key, state)
            if raw != self._stored.get(key):
                yield key, raw
        yield from self.removed()

    def release(self) -> None:
        """Release all states: the batch is over."""
        self.live.clear()
        self._stored.clear()

    def packed(self, key: Key, state: Any) -> bytes:
        """Return the bytes of a state.  Raises UserCodeError if it cannot be packed."""
        try:
            return self._dumps(state)
        except BaseException as error:
            part = unpicklable_part(state, self._dumps)
            why = f"; {part}. Keep only picklable values in the state" if part else ""
            blame(self.step, f"state of key {shorten(key)}{why}", error)

    def removed(self) -> Iterator[tuple[Key, None]]:
        """Yield the keys whose stored state was dropped."""
        for key in self._dropped:
            # a key that was not read may have had no state: removing nothing costs less than
            # reading
            if key not in self.live and self._stored.get(key, b"") is not None:
                yield key, None
