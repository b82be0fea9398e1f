"""The producing side of a shuffle: buckets of keys and values, one pair of lists per task.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wallaroo.engine.blocks import BLOCK_EVENTS_MIN, Block, Packing
from wallaroo.engine.failures import OnError
from wallaroo.engine.keys import encode_key, group_of


def _raise(event: Any, error: BaseException, key: Any) -> None:
    raise error


Routed = tuple[Any, Callable[[Any], None], Callable[[Any], None]]


class Exchange:
    """One stage's way out to the stage behind a shuffle.

    ``route(key)`` answers once per distinct key; the answer (the first-seen key object and two
    bound ``append``s) is kept in ``routes``, so that an event costs one dict lookup and two
    appends, and equal keys are one object, which pickles to two bytes.
    """

    def __init__(
        self,
        stage: int,
        origin: int,
        producer: int,
        owners: tuple[int, ...],
        packing: Packing,
        failed: OnError = _raise,
    ):
        self.stage, self.origin, self.producer = stage, origin, producer
        self.routes: dict[Any, Routed] = {}
        self._owners, self._packing, self._failed = owners, packing, failed
        self._buckets: list[tuple[list[Any], list[Any]]] = [
            ([], []) for _ in range(max(owners) + 1)
        ]
        self._sequence = 0

    def route(self, key: Any) -> Routed:
        """Return and remember where ``key`` goes.  Raises TypeError for a key that is not str,
        bytes or int.
        """
        task = self._owners[group_of(encode_key(key), len(self._owners))]
        keys, values = self._buckets[task]
        routed = self.routes[key] = (key, keys.append, values.append)
        return routed

    def drain(
        self, receipt_ms: int, events_min: int = BLOCK_EVENTS_MIN
    ) -> Iterator[tuple[int, Block]]:
        """Yield ``(task, block)`` for every bucket with at least ``events_min`` events, and empty
        it in place.
        """
        for task, (keys, values) in enumerate(self._buckets):
            if len(keys) >= events_min:
                try:
                    packed = self._packing.pack(keys, values)
                except (Exception, SystemExit):
                    self._leave_out_unpackable(keys, values)
                    if not keys:
                        continue
                    packed = self._packing.pack(keys, values)
                yield (
                    task,
                    Block(
                        self.stage,
                        self.origin,
                        self.producer,
                        self._sequence,
                        receipt_ms,
                        len(keys),
                        packed,
                    ),
                )
                self._sequence += 1
                keys.clear()
                values.clear()

    def _leave_out_unpackable(self, keys: list[Any], values: list[Any]) -> None:
        """Find the events that cannot be packed; tell ``failed``; where it does not raise, go on
        without them.
        """
        packable: list[tuple[Any, Any]] = []
        for key, value in zip(keys, values, strict=True):
            try:
                self._packing.pack([key], [value])
            except (Exception, SystemExit) as own:
                self._failed(value, own, key)
            else:
                packable.append((key, value))
        keys[:] = [key for key, _ in packable]  # in place: routes hold these lists' append
        values[:] = [value for _, value in packable]
