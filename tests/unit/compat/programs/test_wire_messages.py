"""Wallaroo's names for the protocol's messages: every one is read back as it was written."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallaroo.compat.programs import connector_wire_messages as cwm
from wallaroo.protocols.connector.frames import MalformedFrameError
from wallaroo.protocols.connector.two_phase import pack, unpack

FRAMES = [
    cwm.Hello("0.0.1", "cookie", "program", "instance"),
    cwm.Ok(100),
    cwm.Error("trouble"),
    cwm.Notify(123, b"stream", 1001),
    cwm.NotifyAck(False, 123, 1001),
    cwm.Message(1, 2, -3, b"key", b"payload"),
    cwm.Message(1, 2, 0),
    cwm.Ack(1000, [(123, 999), (300, 200)]),
    cwm.Restart("127.0.0.1:5555"),
    cwm.Restart(),
    cwm.EosMessage(5),
]
INNER = [
    cwm.ListUncommitted(77),
    cwm.ReplyUncommitted(77, ["one", "two"]),
    cwm.TwoPCPhase1("t", [(1, 0, 10)]),
    cwm.TwoPCReply("t", True),
    cwm.TwoPCPhase2("t", False),
    cwm.WorkersLeft(1, ["w"]),
]


@pytest.mark.parametrize("message", FRAMES, ids=str)
def test_frames_are_read_as_they_were_written(message: cwm.AnyMessage) -> None:
    packed = cwm.Frame.encode(message)
    assert cwm.Frame.read_header(packed) == len(packed) - 4
    assert cwm.Frame.decode(packed[4:]) == message


@pytest.mark.parametrize("message", INNER, ids=str)
def test_two_phase_messages_are_read_as_they_were_written(message: cwm.AnyTwoPC) -> None:
    assert cwm.TwoPCFrame.decode(cwm.TwoPCFrame.encode(message)) == message


def test_two_phase_messages_have_wallaroos_bytes() -> None:
    assert cwm.TwoPCFrame.encode(cwm.ListUncommitted(7)) == b"\xc9" + struct.pack(">Q", 7)
    phase1 = b"\xcb\0\1t" + struct.pack(">IQQQ", 1, 1, 2, 3)
    assert cwm.TwoPCFrame.encode(cwm.TwoPCPhase1("t", [(1, 2, 3)])) == phase1
    assert cwm.TwoPCFrame.encode(cwm.TwoPCReply("t", True)) == b"\xcc\0\1t\1"


def test_text_as_a_payload_is_refused() -> None:
    with pytest.raises(TypeError, match="Parameter message must be either None or bytes"):
        cwm.Message(1, 1, 0, None, "text")  # type: ignore[arg-type]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_malformed(content: bytes) -> None:
    with contextlib.suppress(MalformedFrameError):
        assert pack(unpack(content))[:1] == content[:1]


def test_an_error_that_is_not_utf_8_is_readable() -> None:
    """Bytes that are no text are replaced, because the error has to be shown in any case."""
    assert cwm.Error.decode(b"\0\2\xffx") == cwm.Error("\ufffdx")
