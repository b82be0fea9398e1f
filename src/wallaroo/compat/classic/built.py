"""State objects that a classic application's builder creates.

Where it runs: driver and workers.
"""

from __future__ import annotations

from typing import Any

from wallaroo.compat.classic.functions import ClassicState
from wallaroo.errors import CheckpointError
from wallaroo.steps.kinds import Callback


class Built:
    """A builder, and the class of the objects that it creates."""

    def __init__(self, builder: Any, cls: type[Any]):
        self._build = Callback(builder.build)  # it is pickled by value if necessary
        self._class = cls

    def build(self) -> Any:
        """Create a state."""
        return self._build.function()

    def content_of(self, stored: Any) -> Any:
        """Return the state in a stored object, which older checkpoints have in a holder.

        Plans of older checkpoints do not name its class, so it is compared here.
        """
        if type(stored) is not ClassicState:
            return stored
        if stored.value is None:
            return self.build()
        if not isinstance(stored.value, self._class):
            was = type(stored.value).__qualname__
            now = self._class.__qualname__
            raise CheckpointError(
                f"it was stored as {was}, and its builder creates {now} now. Let the builder "
                f"create {was}, or give the state another name: it begins empty."
            )
        return stored.value
