"""What is looked up in a segment's index, against its plain twin."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wallaroo.spool.format import (
    INDEX_ENTRY,
    Boundary,
    index_entries,
    index_entry,
    last_entry,
)

steps = st.lists(st.tuples(st.integers(1, 100), st.integers(1, 10)), max_size=20)


@given(
    steps=steps,
    damaged=st.sets(st.integers(0, 19)),
    cut=st.integers(0, INDEX_ENTRY.size - 1),
    events=st.integers(0, 120),
    byte=st.integers(0, 1200),
)
def test_the_last_entry_is_found_whatever_of_the_index_is_damaged(
    steps: list[tuple[int, int]], damaged: set[int], cut: int, events: int, byte: int
) -> None:
    content = bytearray()
    here = Boundary(0, 0)
    for bytes_more, events_more in steps:
        here = Boundary(here.byte + bytes_more, here.events + events_more)
        content += index_entry(here)
    for number in damaged:
        at = number * INDEX_ENTRY.size + 3
        if at < len(content):
            content[at] ^= 1
    whole = bytes(content[: len(content) - cut])

    plain = [one for one in index_entries(whole) if one.events <= events and one.byte <= byte]

    assert last_entry(whole, events, byte) == (plain[-1] if plain else None)
