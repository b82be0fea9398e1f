"""A spool as a source log: positions, ranges, what it refuses, what it lets go."""

from __future__ import annotations

import json
import pickle
import shutil
from itertools import cycle, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wallaroo.errors import CheckpointError
from wallaroo.protocols.framing import Framing
from wallaroo.sources.log import LogContext, Position, RangeServer
from wallaroo.sources.spooled import SpoolLog, open_spool
from wallaroo.spool import folder_of, read_tail
from wallaroo.spool.remote.client import RemoteSpool
from wallaroo.spool.writer import SpoolWriter

EVENTS = 10  # of a chunk


def filled(folder: Path, sizes: list[int], segment_bytes_max: int) -> None:
    """Append one chunk per size; chunk i holds ``size`` frames of a byte each."""
    writer = SpoolWriter(folder, is_durable=False, segment_bytes_max=segment_bytes_max)
    for number, size in enumerate(sizes):
        writer.append(bytes([1, number % 251]) * size, size, number, resume=str(number).encode())
    writer.publish()
    writer.close()


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    segment_bytes_max=st.integers(1, 2000),
    events_max=st.integers(0, 100),
    pieces=st.integers(1, 9),
)
def test_whole_chunks_are_stepped_over_and_dealt_out_where_frames_are_not_known(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    segment_bytes_max: int,
    events_max: int,
    pieces: int,
) -> None:
    """As far as the bound says, where that is half of it at least; one chunk at least."""
    folder = tmp_path_factory.mktemp("spool")
    filled(folder, sizes, segment_bytes_max)
    log = SpoolLog("in", folder, "")
    ends = [sum(sizes[:count]) for count in range(len(sizes) + 1)]
    here = log.beginning()
    while here != log.head().position:
        there = log.advance(here, events_max)
        wanted = max(
            end
            for end in ends
            if end <= here.events + events_max or end == ends[ends.index(here.events) + 1]
        )
        assert there.events == wanted
        parts = [part for own in log.split(here, there, pieces) for part in own]
        assert len(parts) <= pieces
        assert [parts[0].start, parts[-1].end] == [here.place, there.place]
        assert all(left.end == right.start for left, right in pairwise(parts))
        assert sum(part.events for part in parts) == there.events - here.events
        here = there
    assert log.advance(here, events_max) == here
    assert log.split(here, here, pieces) == []


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    segment_bytes_max=st.integers(1, 2000),
    steps=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), min_size=1),
)
def test_chunks_are_cut_so_that_steps_and_pieces_are_as_large_as_wanted(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    segment_bytes_max: int,
    steps: list[tuple[int, int]],
) -> None:
    """However they are cut, every frame is read once, in order, at its place."""
    folder = tmp_path_factory.mktemp("spool")
    filled(folder, sizes, segment_bytes_max)
    log = SpoolLog("in", folder, "", framing=Framing(1, "B"))
    here, frames = log.beginning(), b""
    for events_max, pieces in cycle(steps):
        if here == log.head().position:
            break
        there = Position.from_json(json.loads(json.dumps(log.advance(here, events_max).to_json())))
        taken = there.events - here.events
        assert events_max / 2 <= taken <= events_max or there == log.head().position
        parts = [part for own in log.split(here, there, pieces) for part in own]
        fair = taken / min(pieces, taken)
        assert max(part.events for part in parts) <= 2 * fair + 1
        for part in parts:
            read = b"".join(records.frames for records in log.read(part))
            assert len(read) == 2 * part.events
            frames += read
        here = there
    assert frames == b"".join(bytes([1, n % 251]) * size for n, size in enumerate(sizes))


def test_a_few_slow_events_of_one_chunk_are_shared_by_all_tasks(tmp_path: Path) -> None:
    """Ten events, four tasks: what an event costs decides, not how its bytes arrived."""
    filled(tmp_path, [15_000], 1 << 20)
    log = SpoolLog("in", tmp_path, "", framing=Framing(1, "B"))
    there = log.advance(log.beginning(), 10)
    assert [part.events for own in log.split(log.beginning(), there, 4) for part in own] == [
        2,
        3,
        2,
        3,
    ]


def test_a_spool_that_ends_before_a_chunk_of_which_a_part_is_committed_is_refused(
    tmp_path: Path,
) -> None:
    """The rest of that chunk is gone, too."""
    context = LogContext(tmp_path, "")
    filled(folder_of(tmp_path, "in"), [10, 100], 1 << 20)
    framed = open_spool("in", context, Framing(1, "B"))
    inside = framed.advance(framed.beginning(), 40)
    assert inside.events == 40
    framed.require(inside)
    framed.committed(inside, None)
    assert read_tail(framed.folder).byte == inside.place[0]
    assert framed.backlog_bytes(inside, framed.head()) > 0
    shutil.rmtree(framed.folder)
    filled(folder_of(tmp_path, "in"), [10], 1 << 20)
    with pytest.raises(CheckpointError, match="has committed 40 events"):
        framed.require(inside)


def test_a_large_log_is_cut_by_its_index(tmp_path: Path) -> None:
    filled(tmp_path, [50] * 20_000, segment_bytes_max=400_000)
    log = SpoolLog("in", tmp_path, "")
    assert log.advance(log.beginning(), 777_777).events == 777_750
    for index in tmp_path.glob("*.index"):
        index.write_bytes(b"garbage" * 100)
    assert log.advance(log.beginning(), 777_777).events == 777_750


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
