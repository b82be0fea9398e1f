"""Rows that a vectorized function names."""

from __future__ import annotations

from typing import Any

import pytest

from wallaroo.engine.columnar.calls import indexes


@pytest.mark.parametrize(
    ("named", "wrong"), [([-1], -1), ([0, 2, -3], -3), ([1, 3], 3), ([4, -1], 4), (-2, -2)]
)
def test_an_error_names_the_row_that_is_not_there(named: Any, wrong: int) -> None:
    """The first one, also if its index is negative and others are valid."""
    with pytest.raises(IndexError, match=f"row {wrong} was named, and there are 3 rows"):
        indexes(named, 3)


def test_the_first_and_the_last_row_are_there() -> None:
    assert indexes([0, 2], 3).tolist() == [0, 2]
