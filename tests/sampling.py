"""Parameters of which `make test` tries some, and `make long` all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
IS_ALL = bool(os.environ.get("WALLAROO_ALL_POINTS"))


def sampled(chosen: Iterable[T], others: Iterable[T]) -> list[T]:
    """Return what to try now; ``others`` take a path that another test, or a chosen one, takes."""
    return [*chosen, *(others if IS_ALL else ())]
