"""Kill the writer at every write, fsync, rename and removal: what was published is intact, and the
writer continues.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wallaroo.spool import Boundary, SpoolReader, SpoolWriter
from wallaroo.spool.format import INDEX_STRIDE_BYTES

SRC = str(Path(__file__).parents[3] / "src")
WRITER = """
import sys
from pathlib import Path
from wallaroo.spool import SpoolWriter, write_tail
folder = Path(sys.argv[1])
segment_bytes, frame_bytes = map(int, sys.argv[2:])
writer = SpoolWriter(folder, is_durable=True, segment_bytes_max=segment_bytes)
position = writer.position
for number in range(writer.position.events, 40):
    writer.append((b"frame %03d" % number).ljust(frame_bytes), 1, number, resume=b"%d" % number)
    if number % 3 == 0:
        position = writer.publish()
        print(position.byte, position.events, flush=True)
    if number % 10 == 9:
        write_tail(folder, position)
        writer.remove_consumed()
writer.publish()
"""
SMALL = (200, 0)  # bytes of a segment and of a frame: many segments
LARGE = (10 * INDEX_STRIDE_BYTES, INDEX_STRIDE_BYTES // 2)  # an index entry for every two frames
POINTS = {
    **dict.fromkeys(
        [
            "spool.append",
            "spool.fsync",
            "spool.head",
            "spool.roll",
            "spool.rolled",
            "spool.sync_folder",
        ],
        SMALL,
    ),
    **dict.fromkeys(["spool.remove", "spool.removed"], SMALL),
    "spool.index": LARGE,
}


def run_writer(
    folder: Path, fault: str, sizes: tuple[int, int] = SMALL
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": SRC, "WALLAROO_FAULT": fault}
    command = [sys.executable, "-c", WRITER, str(folder), *map(str, sizes)]
    return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_nothing_published_is_lost_and_the_log_goes_on(
    tmp_path: Path, point: str
) -> None:
    for nth in (1, 2, 5):
        folder, sizes = tmp_path / str(nth), POINTS[point]
        killed = run_writer(folder, f"{point}:{nth}", sizes)
        assert killed.returncode == -9, f"{point} was not passed {nth} times: {killed.stderr}"
        printed = [Boundary(*map(int, line.split())) for line in killed.stdout.splitlines()]
        published = max(printed, default=Boundary())
        writer = SpoolWriter(folder, is_durable=True, segment_bytes_max=sizes[0])
        assert writer.position >= published
        assert writer.last_resume == (
            b"%d" % (writer.position.events - 1) if writer.position.events else b""
        )
        writer.close()
        assert run_writer(folder, "", sizes).returncode == 0
        start = min(Boundary(*map(int, path.stem.split("-"))) for path in folder.glob("*.chunks"))
        reader = SpoolReader(folder)
        frames = [chunk.frames.rstrip() for chunk in reader.chunks(start, reader.head().position)]
        assert frames == [b"frame %03d" % number for number in range(start.events, 40)]


@pytest.mark.parametrize(
    "point",
    [
        "spool.truncate",
        "spool.drop",
        "spool.dropped",
        "spool.rewrite",
        "spool.rewritten",
        "spool.rewritten.synced",
        "spool.rebuild_index",
        "spool.fsync",
        "spool.head",
    ],
)
def test_killed_while_it_recovers_it_recovers_all_the_same(tmp_path: Path, point: str) -> None:
    assert run_writer(tmp_path, "spool.append:30").returncode == -9
    last = max(tmp_path.glob("*.chunks"))
    with open(last, "ab") as file:
        file.write(b"torn")
    if point.startswith("spool.drop"):
        (tmp_path / "99999999999999999999-00000000000000000099.chunks").write_bytes(b"")
    killed = run_writer(tmp_path, f"{point}:1")
    assert killed.returncode == -9, killed.stderr
    assert run_writer(tmp_path, "").returncode == 0
    start = min(Boundary(*map(int, path.stem.split("-"))) for path in tmp_path.glob("*.chunks"))
    reader = SpoolReader(tmp_path)
    frames = [chunk.frames for chunk in reader.chunks(start, reader.head().position)]
    assert frames == [b"frame %03d" % number for number in range(start.events, 40)]
