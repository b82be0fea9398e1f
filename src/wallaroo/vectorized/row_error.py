"""``RowError``: rejection of some rows of a block.

A function or a conversion rejects them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class RowError(Exception):
    """Error raised by a function of a vectorized step for some rows.

    These rows, and no others, are wrong.

    ``rows`` is the index of a row in the function's block, several of them, or a boolean array with
    an entry per row.  The step's error policy is applied to each; with ``on_error="skip"`` or
    ``"dead-letter"`` the function is then called again with the other rows, so it must raise before
    it changes anything.

    >>> raise RowError([3, 7], "no price")
    Traceback (most recent call last):
    ...
    wallaroo.vectorized.row_error.RowError: no price
    """

    def __init__(self, rows: int | Sequence[int] | Any, why: str | Exception = "") -> None:
        super().__init__(rows, why)
        self.rows = rows
        self.why = why

    def __str__(self) -> str:
        return str(self.why)


class RowErrors(RowError):
    """Rejection of rows, each for its own reason."""

    def __init__(self, reasons: Mapping[int, Exception]) -> None:
        super().__init__(list(reasons), next(iter(reasons.values())))
        self.reasons = reasons


class Inconvertible(ValueError):
    """Error for rows or payloads without a common form.

    The block is converted in parts.
    """
