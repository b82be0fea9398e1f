"""Stored state entries, grouped by step and key.

Where it runs: a terminal, with or without a run; pure.

A key's windows, timers and join sides are separate entries, some in pieces with rows of many keys,
and an index holds their due times. Here everything that belongs to a step's key is one
``StoredEntry`` under the step's name; the redundant indexes are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from wallaroo.checkpoints.inspection.values import load_safely
from wallaroo.dataflow.plan.model import ENTRY_KINDS, PANES
from wallaroo.engine.blocks.keys import Key, decode_key, encode_key
from wallaroo.engine.blocks.ordered_keys import Sub, split_entry, split_pane
from wallaroo.engine.stores.sorted_state import ENTRIES
from wallaroo.steps.joins.waiting import NOTES, PIECE
from wallaroo.steps.windows.entries import SLOT_BYTES, unpack_slot

Stored = Mapping[tuple[str, bytes], bytes]  # by name in the step table and stored key
# steps whose rows wait in pieces
PIECE_KINDS = frozenset({"latest join", "latest join of rows", "interval join of rows", "in order"})


class Part(NamedTuple):
    """Stored entry of a key.

    ``size``: its bytes, or this key's share of a piece.
    """

    sub: Sub
    raw: bytes
    size: int


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """All entries that a step keeps for one key.

    ``raw`` is the state object as it was packed, empty if there is none; ``parts`` are the entries
    besides it, in order.
    """

    step: str
    key: Key
    raw: bytes
    parts: tuple[Part, ...] = ()

    @property
    def size(self) -> int:
        """Return the bytes that are stored for it."""
        return len(self.raw) + sum(part.size for part in self.parts)


def step_of(name: str) -> tuple[str, str]:
    """Split a name in the step table into the step's and the kind of entries; '' for states.

    >>> step_of("clicks: entries"), step_of("clicks"), step_of("clicks: raw")
    (('clicks', 'entries'), ('clicks', ''), ('clicks: raw', ''))
    """
    step, separator, kind = name.rpartition(": ")
    return (step, kind) if separator and kind in ENTRY_KINDS else (name, "")


def keyed(stored: Stored, kinds: Mapping[str, str]) -> dict[tuple[str, bytes], StoredEntry]:
    """Return one key group's entries by step and encoded key, in that order.

    ``kinds``: those of the steps, by name.
    """
    states: dict[tuple[str, bytes], bytes] = {}
    parts: dict[tuple[str, bytes], list[Part]] = {}
    for (name, stored_key), value in stored.items():
        step, kind = step_of(name)
        if not kind:
            states[step, stored_key] = value
        elif kind == ENTRIES:
            encoded, sub, raw = split_entry(stored_key, value)
            for owner, size in _owners(encoded, sub, raw, kinds.get(step, "")):
                parts.setdefault((step, owner), []).append(Part(sub, raw, size))
        elif kind == PANES:
            encoded, raw = split_pane(stored_key, value, SLOT_BYTES)
            part = Part(stored_key[:SLOT_BYTES], raw, len(raw))
            parts.setdefault((step, encoded), []).append(part)
    places = sorted(states.keys() | parts.keys())
    return {
        place: StoredEntry(
            place[0], decode_key(place[1]), states.get(place, b""), tuple(parts.get(place, ()))
        )
        for place in places
    }


def _owners(encoded: bytes, sub: Sub, raw: bytes, kind: str) -> Iterator[tuple[bytes, int]]:
    """Yield the encoded keys that an entry belongs to, each with its share of the bytes.

    Notes of a piece belong to none.
    """
    if kind in PIECE_KINDS and _slot_kind(sub) == NOTES:
        return
    rows = rows_of(sub, raw) if kind in PIECE_KINDS else None
    if rows is None:
        yield encoded, len(raw)
        return
    counts: dict[bytes, int] = {}
    for row in rows:
        owner = encode_key(row[1])
        counts[owner] = counts.get(owner, 0) + 1
    for owner, count in counts.items():
        yield owner, len(raw) * count // len(rows)


def rows_of(sub: Sub, raw: bytes) -> list[Any] | None:
    """Return the rows of a piece, of all sides; None if the entry is not a piece, or unreadable."""
    if _slot_kind(sub) != PIECE:
        return None
    sides = sides_of(load_safely(raw))
    return None if sides is None else [row for side in sides for row in side]


def _slot_kind(sub: Sub) -> int | None:
    return unpack_slot(sub).kind if isinstance(sub, bytes) and is_slot(sub) else None


def sides_of(piece: Any) -> list[list[Any]] | None:
    """Return the rows of each side of a piece, which may have them as columns, or None."""
    if not isinstance(piece, tuple):
        return None
    sides = []
    for side in piece:
        if isinstance(side, tuple):
            from wallaroo.engine.columnar.joins.timed_rows import events_in  # loads Arrow

            sides.append(events_in(side))
        elif isinstance(side, list) or side is None:
            sides.append(side or [])
        else:
            return None
    return sides


def is_slot(sub: Sub) -> bool:
    """Return whether a sub names entries of windows or joins."""
    return isinstance(sub, bytes) and len(sub) == SLOT_BYTES
