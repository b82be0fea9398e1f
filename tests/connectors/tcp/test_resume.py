"""What a resuming receiver says, in whatever pieces it arrives."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.connectors.tcp.egress.resume import ResumeStream
from wallaroo.connectors.tcp.pipe import GREETING

OFFSETS = st.lists(st.integers(0, 2**64 - 1), max_size=5)


@given(OFFSETS, st.lists(st.integers(0, 60), max_size=8))
def test_the_offsets_come_out_whole_and_in_order_however_they_are_split(
    offsets: list[int], cuts: list[int]
) -> None:
    said = GREETING + struct.pack(f">{len(offsets)}Q", *offsets)
    edges = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    stream = ResumeStream()

    received = [has for start, end in pairwise(edges) for has in stream.feed(said[start:end])]

    assert received == offsets


def test_half_an_offset_is_kept_until_its_rest_arrives() -> None:
    stream = ResumeStream()

    assert stream.feed(GREETING + bytes(7)) == []
    assert stream.feed(b"\x05\x00") == [5]


@pytest.mark.parametrize("said", [b"X", b"HTTP/1.1 200 OK", GREETING[:-1] + b"2"])
def test_another_protocol_is_noticed_at_its_first_wrong_byte(said: bytes) -> None:
    with pytest.raises(ValueError, match="does not speak the resume protocol"):
        ResumeStream().feed(said)
