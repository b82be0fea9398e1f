"""Lines: each once and in order, wherever a file is cut into ranges, blocks and parts."""

from __future__ import annotations

import io
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from wallaroo.connectors.file.cutting import LineCutter
from wallaroo.protocols.lines import read_lines, split_lines

CONTENTS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc"]), max_size=30).map(
    b"".join
)


def lines_of(content: bytes) -> list[bytes]:
    """The plain twin: one line after the other."""
    return [line.removesuffix(b"\n").removesuffix(b"\r") for line in io.BytesIO(content)]


@given(CONTENTS)
def test_lines_are_without_their_ends(content: bytes) -> None:
    assert split_lines(content) == lines_of(content)


@given(CONTENTS, st.data(), st.integers(1, 7))
@settings(deadline=None)
def test_any_cut_into_ranges_gives_each_line_once(
    content: bytes, data: st.DataObject, block_bytes: int
) -> None:
    size = len(content)
    cuts = sorted({0, size, *data.draw(st.lists(st.integers(0, size), max_size=5))})
    got = [
        line
        for low, high in pairwise(cuts)
        for block in read_lines(io.BytesIO(content), low, high, block_bytes)
        for line in block
    ]
    assert got == lines_of(content)


@given(CONTENTS, st.integers(1, 7), st.booleans())
def test_parts_of_whole_lines_give_each_line_once(
    content: bytes, part_bytes: int, skips_empty: bool
) -> None:
    cutter = LineCutter(skips_empty)
    got: list[bytes] = []
    counted = 0
    pending = b""
    for at in range(0, len(content), part_bytes):
        pending += content[at : at + part_bytes]
        end, events = cutter.whole(pending, at + part_bytes >= len(content))
        got += cutter.payloads(pending[:end])
        counted += events
        pending = pending[end:]
    assert got == [line for line in lines_of(content) if line or not skips_empty]
    assert counted == len(got)
