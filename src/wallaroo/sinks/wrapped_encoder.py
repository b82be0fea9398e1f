"""A user's encoder whose outputs a sink packs for its tasks.

Where it runs: the configuration travels; encoders run in workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.steps import Encoder


class WrappedEncoder(Encoder[Any]):
    """An encoder that calls ``function`` in place of the user's ``inner``.

    Name and place are the user's.  A subclass defines how it is pickled.
    """

    def __init__(self, function: Callable[[Any], Any], inner: Encoder[Any]):
        super().__init__(function, inner.step_name, inner.on_error)
        self.inner = inner
        self.__module__ = inner.__module__
        self.__qualname__ = inner.__qualname__
        self.__doc__ = inner.__doc__

    @property
    def place(self) -> str:
        """Return ``file:line`` of the user's function."""
        return self.inner.place


def _as_it_is(event: Any) -> Any:
    """Return the event itself as the output."""
    return event


AS_IT_IS: Encoder[Any] = Encoder(_as_it_is, "outputs as they are")
AS_IT_IS.__qualname__ = "AS_IT_IS"  # travels by reference, under the name it has here
