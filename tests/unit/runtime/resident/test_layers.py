"""Ordered entries that stay open: what was written since, over the view's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wallaroo.runtime.resident.write_buffer import BufferedEntries, WriteLayer
from wallaroo.testing.local_runner.runner import MemoryEntries

NAME = "step: due"
KEYS = st.binary(min_size=1, max_size=2)
CHANGES = st.lists(
    st.tuples(st.integers(0, 2), KEYS, st.none() | st.binary(max_size=1)), max_size=60
)


def layered(
    written: list[list[tuple[int, bytes, bytes | None]]],
) -> tuple[BufferedEntries, MemoryEntries]:
    """The first changes in a view and the others in layers over it; and all in one place."""
    view, expected = MemoryEntries(), MemoryEntries()
    layers = [WriteLayer(), WriteLayer()]  # older, newer
    for number, changes in enumerate(written):
        expected.apply(changes)
        if number == 0:
            view.apply(changes)
        else:
            layers[number > 2].write({}, {NAME: changes})
    of_layers = [layer.entries.get(NAME, {}) for layer in reversed(layers)]
    return BufferedEntries(of_layers, view), expected


@given(st.lists(CHANGES, min_size=3, max_size=6), KEYS, KEYS)
def test_layers_over_a_view_read_as_if_all_had_been_written_to_it(
    written: list[list[tuple[int, bytes, bytes | None]]], low: bytes, high: bytes
) -> None:
    found, expected = layered(written)

    for group in range(3):
        everything = list(found.scan(group, b"", b"\xff" * 3))
        assert everything == list(expected.scan(group, b"", b"\xff" * 3))
        assert list(found.scan(group, low, high)) == list(expected.scan(group, low, high))
        for _, stored, _ in (change for changes in written for change in changes):
            assert found.get(group, stored) == expected.get(group, stored)


def test_a_layer_is_empty_until_something_was_written() -> None:
    layer = WriteLayer()
    layer.write({"a": []}, {})
    assert layer.is_empty
    layer.write({}, {NAME: [(0, b"k", None)]})
    assert not layer.is_empty


@given(st.lists(CHANGES, min_size=3, max_size=6), st.lists(st.integers(0, 255), max_size=5))
def test_entries_with_some_prefixes_are_found_in_layers_over_a_view(
    written: list[list[tuple[int, bytes, bytes | None]]], first: list[int]
) -> None:
    some = [stored[0] for changes in written for _, stored, _ in changes[::2]]
    prefixes = sorted({bytes([each]) for each in (*first, *some) if each < 255})

    found, expected = layered(written)

    for group in range(3):
        assert sorted(found.scan_each(group, prefixes)) == list(expected.scan_each(group, prefixes))
