"""Kill the writer at every write, fsync, rename and removal: what was published is intact, and the
writer continues.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forks import Forks
from wallaroo.spool import Boundary, SpoolReader
from wallaroo.spool.format import INDEX_STRIDE_BYTES
from wallaroo.spool.writer import SpoolWriter

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


@pytest.fixture(scope="module")
def writer(child_of: Callable[..., Forks]) -> Forks:
    return child_of("tests.unit.spool.crash_child")


def run_writer(
    writer: Forks, folder: Path, fault: str, sizes: tuple[int, int] = SMALL
) -> tuple[int, str]:
    """The exit code, and what it printed."""
    return writer.run(folder, *sizes, WALLAROO_FAULT=fault)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_nothing_published_is_lost_and_the_log_goes_on(
    writer: Forks, tmp_path: Path, point: str
) -> None:
    for nth in (1, 2, 5):
        folder, sizes = tmp_path / str(nth), POINTS[point]
        code, said = run_writer(writer, folder, f"{point}:{nth}", sizes)
        assert code == -9, f"{point} was not passed {nth} times"
        printed = [Boundary(*map(int, line.split())) for line in said.splitlines()]
        published = max(printed, default=Boundary())
        found = SpoolWriter(folder, is_durable=True, segment_bytes_max=sizes[0])
        assert found.position >= published
        assert found.last_resume == (
            b"%d" % (found.position.events - 1) if found.position.events else b""
        )
        found.close()
        assert run_writer(writer, folder, "", sizes)[0] == 0
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
def test_killed_while_it_recovers_it_recovers_all_the_same(
    writer: Forks, tmp_path: Path, point: str
) -> None:
    assert run_writer(writer, tmp_path, "spool.append:30")[0] == -9
    last = max(tmp_path.glob("*.chunks"))
    with open(last, "ab") as file:
        file.write(b"torn")
    if point.startswith("spool.drop"):
        (tmp_path / "99999999999999999999-00000000000000000099.chunks").write_bytes(b"")
    assert run_writer(writer, tmp_path, f"{point}:1")[0] == -9
    assert run_writer(writer, tmp_path, "")[0] == 0
    start = min(Boundary(*map(int, path.stem.split("-"))) for path in tmp_path.glob("*.chunks"))
    reader = SpoolReader(tmp_path)
    frames = [chunk.frames for chunk in reader.chunks(start, reader.head().position)]
    assert frames == [b"frame %03d" % number for number in range(start.events, 40)]
