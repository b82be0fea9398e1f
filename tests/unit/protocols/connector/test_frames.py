"""Frames of the connector protocol: as the protocol's text lays them out, and back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.protocols.connector.frames import (
    NO_POINT,
    Ack,
    EndOfStream,
    Error,
    Frame,
    FrameSplitter,
    Hello,
    MalformedFrameError,
    Message,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    decode,
    encode,
)

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
SHORT = st.binary(max_size=300)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Hello, SHORT, SHORT, SHORT, SHORT),
    st.builds(Ok, U32),
    st.builds(Error, SHORT),
    st.builds(Notify, U64, SHORT, U64),
    st.builds(NotifyAck, st.booleans(), U64, U64),
    st.builds(Message, U64, U64, st.integers(-(2**63), 2**63 - 1), SHORT, st.binary()),
    st.builds(Ack, U32, st.lists(st.tuples(U64, U64), max_size=5).map(tuple)),
    st.builds(Restart, st.binary(max_size=30)),
    st.builds(EndOfStream, U64),
)

LAID_OUT = [
    (Hello(b"0.0.1", b"c", b"p", b""), "00 0005 302e302e31 0001 63 0001 70 0000"),
    (Ok(1000), "01 000003e8"),
    (Error(b"no"), "02 0002 6e6f"),
    (Notify(1, b"s", 2), "03 0000000000000001 0001 73 0000000000000002"),
    (NotifyAck(True, 1, NO_POINT), "04 01 0000000000000001 ffffffffffffffff"),
    (
        Message(1, 2, -1, b"k", b"data"),
        "05 0000000000000001 0000000000000002 ffffffffffffffff 0001 6b 64617461",
    ),
    (Ack(3, ((1, 2),)), "06 00000003 00000001 0000000000000001 0000000000000002"),
    (Restart(b"h:1"), "07 00000003 683a31"),
    (EndOfStream(9), "08 0000000000000009"),
]


@pytest.mark.parametrize(("frame", "hexed"), LAID_OUT, ids=lambda value: type(value).__name__)
def test_every_frame_is_laid_out_as_the_protocol_says(frame: Frame, hexed: str) -> None:
    content = bytes.fromhex(hexed)

    assert encode(frame) == len(content).to_bytes(4, "big") + content
    assert decode(content) == frame


@pytest.mark.parametrize(
    ("hexed", "frame"),
    [("07", Restart()), ("08 0000000000000009 0000000000000005", EndOfStream(9))],
)
def test_the_forms_of_the_text_are_read_where_the_code_differs(hexed: str, frame: Frame) -> None:
    assert decode(bytes.fromhex(hexed)) == frame


@given(frames=st.lists(FRAMES, max_size=6), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_any_frames_survive_any_cut_of_the_bytes(frames: list[Frame], cuts: list[int]) -> None:
    wire = b"".join(map(encode, frames))
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    splitter = FrameSplitter()

    found = [
        decode(content)
        for low, high in pairwise(edges)
        for content in splitter.feed(wire[low:high])
    ]

    assert found == frames
    assert [decode(content) for content in splitter.feed(wire)] == frames  # nothing was left


@given(content=st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_a_malformed_one(content: bytes) -> None:
    try:
        frame = decode(content)
    except MalformedFrameError:
        return
    assert decode(encode(frame)[4:]) == frame


@pytest.mark.parametrize(
    ("hexed", "why"),
    [
        ("", "an empty frame"),
        ("09", "unknown frame type 9"),
        ("01 0000", "a frame of type 1 is cut off"),
        ("01 00000001 00", "a frame of type 1 has 1 extra bytes"),
        ("06 00000001 ffffffff", "a frame of type 6 is cut off"),
        ("05 0000000000000001", "a frame of type 5 is cut off"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(hexed: str, why: str) -> None:
    with pytest.raises(MalformedFrameError, match=why):
        decode(bytes.fromhex(hexed))


@pytest.mark.parametrize("length", [0, 101, 2**32 - 1])
def test_a_length_that_is_not_allowed_is_refused_before_its_bytes_arrive(length: int) -> None:
    with pytest.raises(
        MalformedFrameError, match=f"a frame of {length} bytes; allowed are 1 to 100"
    ):
        FrameSplitter(100).feed(length.to_bytes(4, "big"))


def test_a_text_that_does_not_fit_its_length_is_refused() -> None:
    with pytest.raises(ValueError, match="65536 bytes do not fit"):
        encode(Hello(b"x" * 65536, b"", b"", b""))
