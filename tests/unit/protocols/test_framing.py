"""Framing against its plain twin: one frame after the other."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallaroo.protocols.framing import (
    FrameError,
    Framing,
    frame,
    frame_ender,
    frame_splitter,
    frame_walker,
    framer,
    line_framing,
)

FORMATS = [">I", "<H", "!Q", "B", "=i", ">4xI", "b", ">h", "<q", "I", ">HH"]


def framing_of(length_fmt: str, max_size: int = 1 << 20) -> Framing:
    return Framing(struct.calcsize(length_fmt), length_fmt, max_size)


def plain_split(frames: bytes, length_fmt: str) -> tuple[list[bytes], int]:
    """Split as one would by hand."""
    header, payloads, position = struct.calcsize(length_fmt), [], 0
    while position + header <= len(frames):
        length = struct.unpack(length_fmt, frames[position : position + header])[0]
        if position + header + length > len(frames):
            break
        payloads.append(frames[position + header : position + header + length])
        position += header + length
    return payloads, position


lengths = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 200)), max_size=12).map(
    lambda runs: [length for length, count in runs for _ in range(count)]
)


@settings(max_examples=200, deadline=None)
@given(
    lengths=lengths,
    length_fmt=st.sampled_from(FORMATS),
    filler=st.sampled_from([b"\0", b"\5", b"z"]),
    cut=st.integers(0, 30),
)
def test_walker_and_splitter_agree_with_their_plain_twin(
    lengths: list[int], length_fmt: str, filler: bytes, cut: int
) -> None:
    framing = framing_of(length_fmt)
    payloads = [filler * length for length in lengths]
    frames = b"".join(map(framer(framing), payloads))
    assert frame_splitter(framing)(frames) == payloads
    part = frames[: max(0, len(frames) - cut)]
    whole, end = plain_split(part, length_fmt)
    assert frame_walker(framing)(part, 0, len(part)) == (end, len(whole))
    assert frame_walker(framing)(bytearray(b"xx" + part + b"\0" * 99), 2, 2 + len(part)) == (
        end + 2,
        len(whole),
    )


@pytest.mark.parametrize("same", [1, 100])
@pytest.mark.parametrize(
    ("length_fmt", "bad"), [(">I", 11), (">i", -1), ("b", -128), ("<H", 65535)]
)
def test_a_bad_length_is_reported_with_the_good_frames_before_it(
    length_fmt: str, bad: int, same: int
) -> None:
    framing = framing_of(length_fmt, max_size=10)
    good = frame(b"1234567890", framing) * same
    with pytest.raises(FrameError) as walked:
        frame_walker(framing)(good + struct.pack(length_fmt, bad) + bytes(20), 0, len(good) + 20)
    assert (walked.value.end, walked.value.frames) == (len(good), same)
    assert str(bad) in str(walked.value)
    with pytest.raises(FrameError):
        frame_splitter(framing)(good + struct.pack(length_fmt, bad))


def test_what_was_accepted_stays_readable_with_a_smaller_max_size() -> None:
    frames = frame(b"x" * 100) + frame(b"y") * 20
    assert frame_splitter(Framing(max_size=10))(frames) == [b"x" * 100] + [b"y"] * 20
    lines = b"x" * 100 + b"\ny\n"
    assert frame_splitter(line_framing(10))(lines) == [b"x" * 100, b"y"]


def plain_lines(content: bytes, size_max: int) -> tuple[int, int] | None:
    """Walk line by line; None where one is too long."""
    position = count = 0
    while (newline := content.find(b"\n", position)) >= 0:
        if newline - position > size_max:
            return None
        position = newline + 1
        count += 1
    return None if len(content) - position > size_max else (position, count)


@settings(max_examples=300, deadline=None)
@given(
    content=st.lists(st.sampled_from([b"\n", b"a", b"\r", b"bbb"]), max_size=40).map(b"".join),
    size_max=st.integers(0, 12),
    before=st.integers(0, 3),
)
def test_lines_are_walked_like_their_plain_twin(content: bytes, size_max: int, before: int) -> None:
    wanted = plain_lines(content, size_max)
    walk = frame_walker(line_framing(size_max))
    buffer = bytearray(b"\n" * before + content + b"\n\n")
    if wanted is None:
        with pytest.raises(FrameError) as caught:
            walk(buffer, before, before + len(content))
        end, frames = caught.value.end - before, caught.value.frames
        assert plain_lines(content[:end], size_max) == (end, frames)
        return
    assert walk(buffer, before, before + len(content)) == (before + wanted[0], wanted[1])
    payloads = frame_splitter(line_framing(size_max))(content[: wanted[0]])
    lines = [line.removesuffix(b"\r") for line in content[: wanted[0]].split(b"\n")[:-1]]
    assert payloads == lines


def test_a_payload_becomes_a_line() -> None:
    framing = line_framing(5)
    assert frame(b"abc", framing) == b"abc\n"
    for wrong in (b"a\nb", b"abcdef", b"a\r"):
        with pytest.raises(FrameError):
            frame(wrong, framing)
    with pytest.raises(FrameError, match="cut off"):
        frame_splitter(framing)(b"ab\ncd")


def test_frames_without_payload_are_frames() -> None:
    assert frame_walker(Framing(max_size=10))(bytes(4 * 1000), 0, 4 * 1000) == (4000, 1000)
    assert frame_splitter(Framing())(bytes(4 * 1000)) == [b""] * 1000


@pytest.mark.parametrize("run", [b"\0\0\0\5abc", b"\0\0\0"])
def test_a_run_that_is_not_whole_is_refused_by_the_splitter(run: bytes) -> None:
    with pytest.raises(FrameError, match="cut off"):
        frame_splitter(Framing())(frame(b"x") + run)


@pytest.mark.parametrize(
    ("header_length", "length_fmt"),
    [(4, ">H"), (4, "nonsense"), (4, ">f"), (16, ">12xI"), (0, ""), (4, 7)],
)
def test_a_format_that_cannot_frame_is_refused_in_words(
    header_length: int, length_fmt: str
) -> None:
    with pytest.raises(ValueError, match="length_fmt"):
        frame_walker(Framing(header_length, length_fmt))


@pytest.mark.parametrize(("length_fmt", "size"), [("B", 256), ("b", 128), (">I", 101)])
def test_a_payload_the_framing_cannot_carry_is_refused(length_fmt: str, size: int) -> None:
    with pytest.raises(FrameError, match=str(size)):
        frame(bytes(size), framing_of(length_fmt, 100 if length_fmt == ">I" else 1000))


def test_a_line_that_gets_too_long_is_shown_by_its_beginning() -> None:
    end_of_line = frame_ender(line_framing(20))
    with pytest.raises(FrameError, match=r"it begins with b'abcdefgh01234567'\."):
        end_of_line(b"abcdefgh", bytearray(b"0123456789012"), 13)
