"""``with_columns``: join results made of the left row and right columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.user_code.user_frames import user_place


@dataclass(frozen=True, slots=True)
class WithColumns:
    """A function that adds the right row's columns to the left row.

    ``columns``: pairs of the name in the result and the name in the right row.
    """

    columns: tuple[tuple[str, str], ...]

    def __call__(
        self, left: Mapping[str, Any] | None, right: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the left row with the columns; they are None if there is no right row.

        If there is no left row, return the columns alone.
        """
        if left is None:
            left = {}
        self.require_free(left)
        if right is None:
            return {**left, **{name: None for name, _ in self.columns}}
        self.require(right)
        return {**left, **{name: right[column] for name, column in self.columns}}

    def require(self, names: Collection[str]) -> None:
        """Raise ValueError if a right row lacks one of the columns."""
        for _, column in self.columns:
            if column not in names:
                known = ", ".join(map(repr, names)) or "without names"
                raise ValueError(
                    f"rows of the right side have no column {column!r}; theirs are {known}"
                )

    def require_free(self, names: Collection[str]) -> None:
        """Raise ValueError if the left row has one of the columns."""
        for name, column in self.columns:
            if name in names:
                raise ValueError(
                    f"rows of both sides have a column {name!r}; give that of the right side "
                    f"another name: with_columns(right_{name}={column!r})"
                )


def with_columns(*columns: str, **renamed: str) -> WithColumns:
    """Return the result of a join that adds columns of the right row to the left one.

    ``with_columns("bid", quoted_at="at")`` adds the right row's ``bid``, and its ``at`` under the
    name ``quoted_at``.  Without a right row they are null; without a left row they are the result.
    A name that the left row already has is rejected. Vectorized streams are joined in whole blocks.

    >>> with_columns("bid", quoted_at="at")({"order": 7, "at": 3}, {"bid": 1.5, "at": 2})
    {'order': 7, 'at': 3, 'bid': 1.5, 'quoted_at': 2}
    """
    columns_by_name = (*((column, column) for column in columns), *renamed.items())
    problem = _problem(columns_by_name)
    if problem:
        fix = 'Name columns of the right side, as with_columns("bid", quoted_at="at").'
        raise WallarooParameterError(Problem("with_columns()", user_place(), problem, fix))
    return WithColumns(columns_by_name)


def _problem(given: tuple[tuple[Any, Any], ...]) -> str:
    if not given:
        return "It adds no column."
    for _, column in given:
        if not isinstance(column, str):
            return f"{column!r:.60} is not the name of a column."
    names = [name for name, _ in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    return "" if twice is None else f"It adds two columns named {twice!r}."
