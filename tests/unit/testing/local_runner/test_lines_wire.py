"""Lines in the in-process runner: as on the wire."""

from __future__ import annotations

import pytest

from wallaroo.protocols.framing import line_framing
from wallaroo.testing.local_runner.runner import split_wire


def test_lines_are_cut_apart_with_their_ends() -> None:
    assert split_wire(b"one\r\n\ntwo\n", line_framing()) == [b"one\r\n", b"\n", b"two\n"]


def test_half_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="the last frame is not whole: 3 bytes after byte 4"):
        split_wire(b"one\ntwo", line_framing())
