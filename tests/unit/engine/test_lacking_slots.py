"""Stored events without a value for a slot that is new, when they are stored again."""

from __future__ import annotations

from typing import Any, NoReturn

import attrs
import pytest

from wallaroo.engine.blocks.packing import PICKLED
from wallaroo.engine.stores.pane_state import PaneState
from wallaroo.engine.stores.sorted_state import Groups, SortedState


@attrs.frozen
class Event:
    number: int
    added: str = ""


class Empty:
    def get(self, group: int, stored: bytes) -> None:
        return None


class Blamed(Exception):
    pass


def blamed(error: Exception) -> NoReturn:
    raise Blamed from error


@pytest.mark.parametrize("kind", [PaneState, SortedState])
def test_the_error_is_blamed_on_the_step(kind: Any) -> None:
    """It was a mistake in wallaroo."""
    event = object.__new__(Event)
    object.__setattr__(event, "number", 1)
    store = kind(Empty(), Groups(0, 1, 1), PICKLED.dumps, PICKLED.loads, blamed)
    if kind is PaneState:
        store.write(b"pane", {"a": event})
    else:
        store.put("a", "sub", event)

    with pytest.raises(Blamed):
        list(store.changes())
