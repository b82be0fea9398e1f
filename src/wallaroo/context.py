"""What a state computation may know and do besides its event and its state.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from collections.abc import Callable


class Context:
    """The third argument of a state computation that asks for one.

    It belongs to one call: what it says and does is about the event of this call, so it must not be
    kept.
    """

    __slots__ = ("_drop", "key")

    key: str | bytes | int
    """The event's key; of events that ``collect()`` brought together, one that they share."""

    def __init__(self, drop: Callable[[str | bytes | int], None]):
        self._drop = drop

    def drop_state(self) -> None:
        """Remove the key's state: nothing of it is stored any more, and the key's next event meets
        a new state object.

        What is done to the old object after this is lost.
        """
        self._drop(self.key)
