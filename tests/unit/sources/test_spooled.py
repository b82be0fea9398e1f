"""A spool as a source log: positions, ranges, what it refuses, what it lets go."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import pytest

from wallaroo.errors import CheckpointError
from wallaroo.range_server.client import RemoteSpool
from wallaroo.sources.log import LogContext, Position, RangeServer
from wallaroo.sources.spooled import SpoolLog, open_spool
from wallaroo.spool import SpoolWriter, folder_of, read_tail

EVENTS = 10  # of a chunk


@pytest.fixture
def log(tmp_path: Path) -> SpoolLog:
    fill(tmp_path, 20)
    return open_spool("in", LogContext(tmp_path, "one"))


def fill(root: Path, chunks: int) -> None:
    writer = SpoolWriter(
        folder_of(root, "in"), is_durable=False, segment_bytes_max=200, checkpoint="one"
    )
    for number in range(chunks):
        writer.append(b"%04d" % number * EVENTS, EVENTS, number)
    writer.publish()
    writer.close()


def test_any_steps_and_cuts_read_the_same_frames(log: SpoolLog) -> None:
    copied = pickle.loads(pickle.dumps(log))
    positions = [log.beginning()]
    while positions[-1] != log.head().position:
        positions.append(Position.from_json(log.advance(positions[-1], 35).to_json()))

    parts = [part for ends in pairwise(positions) for own in log.split(*ends, 3) for part in own]
    frames = b"".join(records.frames for part in parts for records in copied.read(part))

    assert frames == b"".join(b"%04d" % number * EVENTS for number in range(20))
    assert sum(part.events for part in parts) == 20 * EVENTS == log.head().position.events
    assert log.backlog_bytes(positions[0], log.head()) > len(frames)


def test_a_released_position_cannot_be_read_again_and_a_retained_one_can(
    log: SpoolLog, tmp_path: Path
) -> None:
    early, late = log.advance(log.beginning(), 50), log.head().position
    middle = log.advance(early, 50)
    log.committed(late, middle)
    writer = SpoolWriter(log.folder, is_durable=False, checkpoint="one")
    writer.remove_consumed()
    writer.close()

    log.require(middle)
    log.require(late)
    with pytest.raises(CheckpointError, match=r"source 'in': input from event 50 on .* begins at"):
        log.require(early)
    log.rewind(middle)
    assert read_tail(log.folder).byte == middle.place


def test_a_position_after_the_end_and_another_checkpoints_spool_are_refused(
    log: SpoolLog, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="has committed 900 events"):
        log.require(Position(100_000, 900))
    with pytest.raises(CheckpointError, match="belongs to another checkpoint"):
        open_spool("in", LogContext(tmp_path, "two")).require(log.head().position)


def test_workers_elsewhere_read_through_the_range_server(tmp_path: Path) -> None:
    server = RangeServer(("10.0.0.1", 7), b"secret", "certificate")
    log = open_spool("in", LogContext(tmp_path, server=server))
    assert log.remote == RemoteSpool(("10.0.0.1", 7), b"secret", "in", "certificate")
    assert "secret" not in repr(server)
