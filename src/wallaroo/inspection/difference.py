"""Changes of state between two commits.

Where it runs: a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wallaroo.engine.keys import Key
from wallaroo.engine.ordered_entries import shown_key
from wallaroo.inspection.reader import StateAt


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one key's state between two commits.

    ``old`` is None if it was added, ``new`` if it was removed.
    """

    step: str
    key: Key
    old: bytes | None
    new: bytes | None


def changes(old: StateAt, new: StateAt, step: str | None = None) -> Iterator[Change]:
    """Yield the changes between two commits, key group by key group.

    They are those of one step, if it is named.
    """
    for group in range(max(old.groups, new.groups)):
        before = old.group(group) if group < old.groups else {}
        after = new.group(group) if group < new.groups else {}
        for name, key in sorted(before.keys() | after.keys()):
            was = before.get((name, key))
            now = after.get((name, key))
            if was != now and step in (None, name):
                yield Change(name, shown_key(name, key, now or was or b""), was, now)
