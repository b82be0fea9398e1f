"""A user's encoder whose outputs are packed for a sink's tasks.

Where it runs: the configuration is pickled; encoders run in workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wallaroo.steps.kinds import Encoder, WrappedStep

# Returns the staged form of an output; raises TypeError or ValueError if it has none.  If it has
# `pack_all`, outputs of its `output_type` wait for that, see `Encoder`.
Pack = Callable[[Any], Any]


class WrappedEncoder(WrappedStep, Encoder[Any]):
    """The user's encoder ``inner`` with ``pack`` applied to its outputs.

    It can be pickled.
    """

    inner: Encoder[Any]

    def __init__(self, inner: Encoder[Any], pack: Pack):
        function = inner.function

        def encode(event: Any) -> Any:
            output = function(event)
            return None if output is None else pack(output)

        super().__init__(encode, inner.step_name, inner.on_error)
        self._take_over(inner, pack)
        self.pack = pack
        self.output_type = getattr(pack, "output_type", bytes)
        if inner is AS_IT_IS:
            self.encode_block = getattr(pack, "block", None)

    def pack_all(self, outputs: list[Any]) -> list[bytes]:
        pack_all = getattr(self.pack, "pack_all", super().pack_all)
        packed: list[bytes] = pack_all(outputs)
        return packed


def wrapped(inner: Any, pack: Pack) -> Any:
    """Return an encoder whose outputs are packed; without ``inner`` it packs events.

    Anything that is not an encoder is returned as it is: the build reports it.
    """
    if isinstance(inner, WrappedEncoder):  # a copy of a configuration
        inner = inner.inner
    if inner is not None and not isinstance(inner, Encoder):
        return inner
    return WrappedEncoder(inner or AS_IT_IS, pack)


def _as_it_is(event: Any) -> Any:
    return event


AS_IT_IS: Encoder[Any] = Encoder(_as_it_is, "outputs as they are")
AS_IT_IS.__qualname__ = "AS_IT_IS"  # pickled by reference, under the name it has here
