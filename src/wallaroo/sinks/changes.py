"""Deletions and keys, for sinks with keys.

Where it runs: encoders return them in workers; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from wallaroo.serdes.shape_errors import shown
from wallaroo.serdes.typed import fields_of, is_named_tuple

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of a row by key, for sinks with ``key=``.

    ``key`` is the value of the key's column; of several columns a tuple in their order.  A dict, a
    dataclass or a named tuple with the key's fields, such as the last version of the row, is
    accepted, too.
    """

    key: Any

    def values(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the values of a key's columns; raise ValueError if it has other columns.

        >>> Delete({"word": "tea", "total": 3}).values(("word",))
        ('tea',)
        """
        if not names:
            raise ValueError("a Delete needs a sink with key=, which names the key's columns")
        is_named = set(getattr(self.key, "_fields", ())) >= set(names)
        fields = self.key._asdict() if is_named else fields_of(self.key)
        key = self.key if fields is None else fields
        if isinstance(key, dict) and all(name in key for name in names):
            return tuple(key[name] for name in names)
        values = key if isinstance(key, tuple) else (key,)
        if isinstance(key, dict) or len(values) != len(names):
            raise ValueError(f"Delete({shown(key)}) is not a key of ({', '.join(names)})")
        return values


def form_with(key: Sequence[str]) -> str:
    """Return in words how staged rows and deletions are read (``SinkConfig.staged_form``).

    >>> form_with(("a", "b")), form_with(())
    ('with the key a, b', 'without a key')
    """
    return f"with the key {', '.join(key)}" if key else "without a key"


def refuse_delete(output: Any) -> None:
    """Raise ValueError if an output of a sink without a key is a deletion."""
    if isinstance(output, Delete):
        output.values(())


def require_key(
    names: tuple[str, ...], values: tuple[Any, ...], *, takes_nan: bool = False
) -> None:
    """Raise ValueError if a value of a key is None, or NaN, which most systems equal to nothing."""
    for name, value in zip(names, values, strict=True):
        if value is None or (value != value and not takes_nan):
            raise ValueError(f"key column '{name}' is {value}; a key needs a value")


def row_with(output: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return an output's fields; raise ValueError unless it has those of a key."""
    fields = output._asdict() if is_named_tuple(type(output)) else fields_of(output)
    row = output if fields is None else fields
    if not isinstance(row, dict):
        raise ValueError(
            f"a row must be a dict, a dataclass or a named tuple, this one is {shown(output)}"
        )
    lacking = [name for name in names if name not in row]
    if lacking:
        raise ValueError(f"the row has no {', '.join(map(repr, lacking))}, which is of the key")
    require_key(names, tuple(row[name] for name in names))
    return row


def last_of_each(rows: Iterable[Row], key_of: Callable[[Row], Hashable]) -> Iterable[Row]:
    """Return the last row of each key, in the order in which these came.

    >>> list(last_of_each(["a1", "b1", "a2"], lambda row: row[0]))
    ['b1', 'a2']
    """
    newest: dict[Hashable, Row] = {}
    for row in rows:
        key = key_of(row)
        newest.pop(key, None)
        newest[key] = row
    return newest.values()
