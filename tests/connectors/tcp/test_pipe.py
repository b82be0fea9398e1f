"""The pipe of messages between a committer and its egress."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallaroo.connectors.tcp.egress.__main__ import take_lock
from wallaroo.connectors.tcp.pipe import Pipe
from wallaroo.connectors.tcp.process import Child
from wallaroo.durable.locks import lock_file

LAST_WORDS = """
import sys
sys.stdout.write('{"accepted": 7}\\n{"broken": "the outbox is damaged"}\\n{"acce')
"""


@pytest.fixture
def ends() -> Iterator[tuple[Pipe, int, int]]:
    """A pipe, and the other side's descriptors: to read from, and to write to."""
    incoming, theirs_out = os.pipe()
    theirs_in, outgoing = os.pipe()
    yield Pipe(incoming, outgoing), theirs_in, theirs_out
    for descriptor in (incoming, outgoing):
        os.close(descriptor)


def test_messages_are_received_when_they_are_whole(ends: tuple[Pipe, int, int]) -> None:
    pipe, theirs_in, theirs_out = ends
    os.write(theirs_out, b'{"ping": true}\n{"clo')
    assert pipe.receive() == [{"ping": True}]
    os.write(theirs_out, b'se": true}\n')
    assert pipe.receive() == [{"close": True}]
    assert pipe.receive() == []
    assert pipe.is_open
    os.close(theirs_in)
    os.close(theirs_out)


def test_what_the_other_side_does_not_read_waits(ends: tuple[Pipe, int, int]) -> None:
    pipe, theirs_in, theirs_out = ends
    text = "x" * (1 << 20)
    pipe.send(text=text)
    assert pipe.has_output
    raw = b""
    while not raw.endswith(b"\n"):
        raw += os.read(theirs_in, 1 << 16)
        pipe.flush()
    assert json.loads(raw) == {"text": text}
    assert not pipe.has_output
    os.close(theirs_in)
    os.close(theirs_out)


def test_what_was_written_before_the_other_side_stopped_to_read_is_received(
    ends: tuple[Pipe, int, int],
) -> None:
    pipe, theirs_in, theirs_out = ends
    os.write(theirs_out, b'{"accepted": 7}\n')
    os.close(theirs_in)
    pipe.send(ping=True)
    assert (pipe.is_open, pipe.has_output, pipe.has_ended) == (False, False, False)
    assert pipe.receive() == [{"accepted": 7}]
    os.close(theirs_out)
    assert (pipe.receive(), pipe.has_ended) == ([], True)


def test_the_last_words_of_a_process_are_received() -> None:
    """They may come with the end of the pipe, and half a message after them."""
    command = [sys.executable, "-c", LAST_WORDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.wait()
        child = Child(process)
        messages = child.receive()
    assert messages == [{"accepted": 7}, {"broken": "the outbox is damaged"}]
    assert child.pipe.has_ended
    assert child.has_spoken


def test_an_egress_that_waits_for_an_earlier_one_names_it_and_the_way_out(
    ends: tuple[Pipe, int, int], tmp_path: Path
) -> None:
    pipe, theirs_in, theirs_out = ends
    held = lock_file(tmp_path / "lock", "process 7")
    os.write(theirs_out, b'{"close": true}\n')
    assert take_lock(tmp_path / "lock", pipe) == -1
    os.close(held)
    assert json.loads(os.read(theirs_in, 1000)) == {
        "waiting": "the sending process of an earlier run to end (process 7; kill it if it is "
        "stopped)"
    }
