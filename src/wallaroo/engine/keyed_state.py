"""The state objects of one state step in one task of one batch.

Where it runs: pure (in workers).  Objects are made lazily, live for the batch, and are pickled once
at its end; what did not change is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.engine.blocks import Packing
from wallaroo.engine.error_context import blame, shorten
from wallaroo.engine.keys import Key
from wallaroo.steps import Step

Read = Callable[[Key], bytes | None]


class KeyedState:
    """``live`` holds the objects touched so far; ``load`` brings one in."""

    def __init__(self, step: Step, read: Read, packing: Packing):
        self.step = step
        self.live: dict[Key, Any] = {}
        self._stored: dict[Key, bytes | None] = {}
        self._read, self._dumps, self._loads = read, packing.dumps, packing.loads
        self._make: Callable[[], Any] = step.state_class  # type: ignore[attr-defined]  # only state steps come here

    def load(self, key: Key) -> Any:
        """Return the key's state: from the view, or new.  Raises UserCodeError if the class cannot
        make or read it.
        """
        raw = self._read(key)
        try:
            state = self._make() if raw is None else self._loads(raw)
        except BaseException as error:
            blame(self.step, f"state of key {shorten(key)}", error)
        self._stored[key] = raw
        self.live[key] = state
        return state

    def changes(self) -> Iterator[tuple[Key, bytes]]:
        """Yield key and pickled state for every touched key whose bytes differ from what was
        stored.
        """
        for key, state in self.live.items():
            try:
                raw = self._dumps(state)
            except BaseException as error:
                blame(self.step, f"state of key {shorten(key)}", error)
            if raw != self._stored[key]:
                yield key, raw
