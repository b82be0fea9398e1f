"""Return whether a run may continue without the parts that do not match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wallaroo.checkpoints.inspection.keyed import StoredEntry
from wallaroo.checkpoints.inspection.reader import StateAt
from wallaroo.engine.blocks.keys import Key, decode_key


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one key's state; ``old`` None: added, ``new`` None: removed."""

    step: str
    key: Key
    old: StoredEntry | None
    new: StoredEntry | None


def changes(old: StateAt, new: StateAt, step: str | None = None) -> Iterator[Change]:
    """Yield the changes between commits, of one step if named, by key group."""
    for group in range(max(old.groups, new.groups)):
        before = old.keyed(group) if group < old.groups else {}
        after = new.keyed(group) if group < new.groups else {}
        for name, key in sorted(before.keys() | after.keys()):
            was = before.get((name, key))
            now = after.get((name, key))
            if was != now and step in (None, name):
                yield Change(name, decode_key(key), was, now)
