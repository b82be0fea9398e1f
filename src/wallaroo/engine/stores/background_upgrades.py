"""Background upgrade of stored state objects, in bounded portions.

The invariant: the stored objects themselves show which are left. A portion is written with its
batch's commit or not at all, so a restarted run finds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from wallaroo.engine.blocks.keys import decode_key
from wallaroo.engine.blocks.packing import PICKLED, Packing
from wallaroo.engine.stores.evolution import outdated
from wallaroo.engine.stores.keyed_state import KeyedState, Read
from wallaroo.engine.stores.last_use import without_last_use
from wallaroo.steps.state_versions import Evolution
from wallaroo.user_code.compact_pickles import pickled_by_values

# costs of old objects in units of inspecting one, some 4 us
UNITS_PER_COUNT = 2
UNITS_PER_UPGRADE = 10
BYTES_PER_UNIT = 512

# yields up to this many encoded keys and states of a key group, after a given key
Scan = Callable[[int, bytes, int], Iterator[tuple[bytes, bytes]]]


@pickled_by_values
@dataclass(frozen=True, slots=True)
class Portion:
    """The part of one step's stored objects that a batch's tasks inspect.

    ``cursors``: by key group still to inspect, the encoded key after which to continue;
    ``units``: how much each task does; ``is_count``: old objects are counted only.
    """

    step: str
    cursors: Mapping[int, bytes]
    units: int
    is_count: bool


class Reached(NamedTuple):
    """Progress in one key group.

    It has the next cursor, and the number of old objects.
    """

    cursor: bytes | None  # None: it is done
    old: int


def is_old(state: KeyedState, packing: Packing, evolution: Evolution) -> Callable[[bytes], bool]:
    """Return a predicate: whether a step would now store an object in another form."""
    is_outdated = outdated(state.step, packing, evolution)
    if packing.dumps is PICKLED.dumps:
        return is_outdated
    return lambda raw: is_outdated(without_last_use(raw))


def upgrade_portion(
    portion: Portion,
    groups: range,
    state: KeyedState,
    is_old: Callable[[bytes], bool],
    scan: Scan,
    read: Read,
) -> dict[int, Reached]:
    """Process a task's part of a portion: load its old objects, which are then written.

    ``scan`` may return objects of an earlier commit than ``read``.  Raises UserCodeError if an
    object cannot be upgraded.
    """
    reached: dict[int, Reached] = {}
    units = portion.units
    for group in groups:
        cursor: bytes | None = portion.cursors.get(group)
        if cursor is None or units <= 0:
            continue
        old = 0
        while cursor is not None and units > 0:
            before = cursor
            cursor = None
            for encoded, raw in scan(group, before, units):
                cursor = encoded
                units -= 1 + len(raw) // BYTES_PER_UNIT
                if is_old(raw):
                    units -= UNITS_PER_COUNT if portion.is_count else UNITS_PER_UPGRADE
                    key = decode_key(encoded)
                    newest = read(key)
                    if newest is not None and is_old(newest):
                        old += 1
                        if not portion.is_count:
                            state.upgrade(key)
                if units <= 0:
                    break
        reached[group] = Reached(cursor, old)
    return reached
