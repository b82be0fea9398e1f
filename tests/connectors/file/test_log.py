"""Files as a log: read in place, from any position on, and refused where they have changed."""

from __future__ import annotations

import gzip
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.privileges import without_privileges
from wallaroo.connectors.file import reader
from wallaroo.connectors.file.cutting import LineCutter
from wallaroo.connectors.file.files import OpenFile
from wallaroo.connectors.file.log import MARKS_AHEAD_MAX, FileLog, FileSource
from wallaroo.connectors.file.source import FileSourceConfig
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.protocols.framing import Framing, frame_splitter
from wallaroo.sources.log import LogContext, Position, SourceLog

START = Position(None, 0)


@wallaroo.decoder(header_length=4, length_fmt=">I")
def as_bytes(payload: bytes) -> bytes:
    return payload


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while reader._files:
        _, file = reader._files.popitem()
        file.close()


def write(path: Path, *lines: str) -> None:
    content = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def opened(path: Path, position: Position = START, **options: Any) -> SourceLog:
    """Open the log as a run does: in the driver, then copies of it in workers."""
    log = FileSourceConfig("Lines", str(path), **options).open_log(LogContext(Path()))
    if position == START:
        assert log.beginning() == START
    else:
        log.require(position)
    copy: SourceLog = pickle.loads(pickle.dumps(log))
    return copy


def taken(log: SourceLog, start: Position, end: Position, pieces: int = 3) -> list[bytes]:
    """Read what lies between two positions, by copies of the log as workers have them."""
    worker: SourceLog = pickle.loads(pickle.dumps(log))
    payloads: list[bytes] = []
    for piece in log.split(start, end, pieces):
        for part in piece:
            before = len(payloads)
            for records in worker.read(part):
                payloads += records.payloads or frame_splitter(Framing())(records.frames)
            assert len(payloads) - before == part.events
    return payloads


def read(
    path: Path, position: Position = START, events: int = 1 << 40, batches: int = -1, **options: Any
) -> tuple[list[bytes], Position]:
    """Read so many batches; return the payloads and where to continue."""
    log = opened(path, position, **options)
    payloads: list[bytes] = []
    while batches and log.backlog(position):
        end = log.advance(position, events)
        payloads += taken(log, position, end)
        assert end.events - position.events > 0
        position = Position.from_json(end.to_json())
        log.committed(position, None)
        batches -= 1
    return payloads, position


LINES = {
    b"a\nb\n": [b"a", b"b"],
    b"a\n\nb": [b"a", b"", b"b"],
    b"\r\n\r\nx\ry\r\n": [b"", b"", b"x\ry"],
    b"": [],
    b"\n": [b""],
    b"\n" * 3: [b""] * 3,
    b"x" * 600_000 + b"\n" + b"y" * 300_000: [b"x" * 600_000, b"y" * 300_000],
    b"\n" * 200_000 + b"a": [b""] * 200_000 + [b"a"],
}


@pytest.mark.parametrize("suffix", ["txt", "gz"])
@pytest.mark.parametrize("skip_empty", [False, True])
@pytest.mark.parametrize("content", LINES)
def test_every_line_of_a_file_is_a_payload(
    tmp_path: Path, content: bytes, skip_empty: bool, suffix: str
) -> None:
    path = tmp_path / f"lines.{suffix}"
    path.write_bytes(gzip.compress(content) if suffix == "gz" else content)
    wanted = [line for line in LINES[content] if line or not skip_empty]
    payloads, position = read(path, events=1, skip_empty=skip_empty)
    assert payloads == wanted
    assert position.events == len(wanted)
    head = opened(path, skip_empty=skip_empty).head()
    assert (head.position.events, head.is_ended) == (len(wanted), True)


@pytest.mark.parametrize("pattern", ["", "*.*", "**/*"])
def test_several_files_are_read_in_the_order_of_their_paths(tmp_path: Path, pattern: str) -> None:
    """A last line without a newline is not joined with the next file's first."""
    write(tmp_path / "b.gz", "3", "4")
    write(tmp_path / "a.txt", "1", "2")
    write(tmp_path / "c.txt", "5")
    write(tmp_path / ".hidden", "no")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "folder").mkdir()
    assert read(tmp_path / pattern)[0] == [b"1", b"2", b"3", b"4", b"5"]


def test_from_any_position_on_the_rest_of_all_files_is_read(tmp_path: Path) -> None:
    """Each batch is of a run of its own; a piece never begins before the piece in front of it."""
    lines = [f"{number:06d}" for number in range(100_000)]
    for number in range(3):
        suffix = ".gz" if number == 1 else ""
        write(tmp_path / f"{number}{suffix}", *lines[number * 30_000 : number * 30_000 + 30_000])
    payloads, position = list[bytes](), START
    batches = 0
    while some := read(tmp_path, position, events=10_000, batches=1):
        if not some[0]:
            break
        payloads += some[0]
        position = some[1]
        batches += 1
    assert payloads == [line.encode() for line in lines[:90_000]]
    assert batches >= 9
    write(tmp_path / "2a", "new")
    write(tmp_path / "0a", "too late")
    (tmp_path / "0").unlink()
    payloads, after = read(tmp_path, position)
    assert payloads == [b"new"]
    (tmp_path / "2").unlink()
    assert read(tmp_path, position)[0] == [b"new"]
    (tmp_path / "2a").unlink()
    assert read(tmp_path, after)[0] == []


def test_any_process_finds_the_same_ranges(tmp_path: Path) -> None:
    """A run that continues after a commit begins to look there."""
    lines = [f"{number}" * (number % 40) for number in range(60_000)]
    write(tmp_path / "in.txt", *lines)
    whole = opened(tmp_path / "in.txt")
    position = START
    payloads: list[bytes] = []
    while whole.backlog(position):
        end = whole.advance(position, 7_000)
        fresh = opened(tmp_path / "in.txt", position)
        assert fresh.advance(position, 7_000) == end
        some = taken(fresh, position, end, pieces=4)
        assert len(some) == end.events - position.events
        payloads += some
        position = end
    assert payloads == [line.encode() for line in lines]


@pytest.mark.parametrize("name", ["in.txt", "in.gz"])
def test_a_replaced_file_of_the_same_size_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = [f"{number:06d}" for number in range(60_000)]
    write(path, *lines)
    first, position = read(path, events=20_000, batches=1)
    path.unlink()
    write(path, *lines)
    rest, _ = read(path, position)
    assert first + rest == [line.encode() for line in lines]
    write(path, *lines[:50], "x" * 6, *lines[51:])
    with pytest.raises(
        CheckpointError, match=r"is not the file whose first \d+ bytes were read before"
    ):
        read(path, position)


def overwrite(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes()[1:])


def cut_off(path: Path) -> None:
    os.truncate(path, 1000)


@pytest.mark.parametrize("change", [overwrite, cut_off])
def test_a_file_that_changes_between_plan_and_reading_is_refused(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "in.txt"
    write(path, *["x" * 100] * 1000)
    log = opened(path)
    (piece,) = log.split(START, log.advance(START, 1000), 1)
    change(path)
    with pytest.raises(CheckpointError, match=r"in.txt has changed since it was looked at"):
        list(log.read(piece[0]))


def test_a_file_that_has_grown_is_read_on_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\n")
    log = opened(path)
    with path.open("ab") as file:
        file.write(b"c\n")
    end = log.advance(START, 100)
    assert taken(log, START, end) == [b"a", b"b"]
    assert log.backlog(end) == 0
    assert read(path, end)[0] == [b"c"]


@pytest.mark.parametrize(
    ("written", "added", "is_reported"),
    [(b"a\nb", b"c\n", True), (b"a\nb\n", b"c\n", False), (b"a\nb", b"", False)],
)
def test_a_line_that_was_read_without_its_end_is_reported(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    written: bytes,
    added: bytes,
    is_reported: bool,
) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(written)
    payloads, end = read(path)
    assert payloads == [b"a", b"b"]
    with path.open("ab") as file:
        file.write(added)
    assert read(path, end)[0] == ([b"c"] if added else [])
    words = "in.txt ended inside a line at byte 3 when it was read, and has grown"
    assert (words in caplog.text) == is_reported


def test_new_files_before_the_last_one_that_was_read_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not read; those that were removed, and those after it, are no reason."""
    for name in ("k", "m"):
        write(tmp_path / name, name)
    _, end = read(tmp_path)
    (tmp_path / "k").unlink()
    write(tmp_path / "z", "z")
    payloads, end = read(tmp_path, end)
    assert payloads == [b"z"]
    assert caplog.text == ""

    write(tmp_path / "a", "a")
    assert read(tmp_path, end)[0] == []
    assert f"was read up to {tmp_path}/z; files before it: 1 then, 2 now" in caplog.text
    assert f"({tmp_path}/a, {tmp_path}/m)" in caplog.text


def test_a_file_that_is_gone_or_shorter_before_its_end_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a", *["x" * 1000] * 1000)
    write(tmp_path / "b", "y")
    _, position = read(tmp_path, events=1, batches=1)
    cut_off(tmp_path / "a")
    with pytest.raises(CheckpointError, match=r"has 1000 bytes, and \d+ were read before"):
        read(tmp_path, position)
    (tmp_path / "a").unlink()
    with pytest.raises(CheckpointError, match=r"was read up to byte \d+ and is gone"):
        read(tmp_path, position)


@pytest.mark.parametrize("pattern", ["", "*.txt", "**/*.txt"])
def test_files_that_are_gone_before_they_were_read_are_refused(
    tmp_path: Path, pattern: str
) -> None:
    """The input would end without them, as where a disk is not mounted at a start."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("1.txt", "2.txt", "3.txt"):
        write(folder / name, name)
    _, position = read(folder / pattern, events=1, batches=1)
    (folder / "3.txt").unlink()
    with pytest.raises(CheckpointError, match="2 files after it waited to be read, and 1 are"):
        opened(folder / pattern, position)
    folder.rename(tmp_path / "away")
    with pytest.raises(PeerError, match="No such file or directory"):
        opened(folder / pattern, position)
    folder.mkdir()
    with pytest.raises(CheckpointError, match="waited to be read, and 0 are there"):
        opened(folder / pattern, position)
    (folder / "2.txt").touch()
    (folder / "3.txt").touch()
    assert read(folder / pattern, position)[0] == []


@pytest.mark.parametrize("path", ["in", "in/*.txt", "in/1.txt"])
def test_files_that_were_all_read_may_be_gone_but_not_their_folder(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "1.txt", "1")
    _, end = read(tmp_path / path)
    (tmp_path / "in" / "1.txt").unlink()
    log = opened(tmp_path / path, end)
    assert (log.head().is_ended, log.backlog(end)) == (True, 0)
    (tmp_path / "in").rmdir()
    with pytest.raises(PeerError, match="No such file or directory"):
        opened(tmp_path / path, end)


def test_a_position_of_an_earlier_version_does_not_end_in_an_empty_folder(tmp_path: Path) -> None:
    """It does not say how many files were to be read after it."""
    write(tmp_path / "1.txt", "1")
    _, end = read(tmp_path)
    earlier = Position({**end.place, "files_after": -1}, end.events)
    assert read(tmp_path, earlier)[0] == []
    (tmp_path / "1.txt").unlink()
    with pytest.raises(CheckpointError, match="did not record if more were to be read"):
        opened(tmp_path, earlier)


@pytest.mark.parametrize("closed_name", ["in/b", "in/b/2.txt"])
def test_what_may_not_be_read_is_refused_though_the_rest_was_read(closed_name: str) -> None:
    """Given a subfolder, or a file, without permission to read it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        folder = Path(name, "in")
        folder.mkdir()
        write(folder / "1.txt", "1")
        _, end = read(folder / "**" / "*.txt")
        (folder / "b").mkdir()
        write(folder / "b" / "2.txt", "2")
        closed_path = Path(name, closed_name)
        mode = closed_path.stat().st_mode
        closed_path.chmod(0)
        with without_privileges(), pytest.raises(PeerError, match=r"/in/b.*(run again|Give it)"):
            opened(folder / "**" / "*.txt", end)
        closed_path.chmod(mode)
        assert read(folder / "**" / "*.txt", end)[0] == [b"2"]


def test_a_pattern_does_not_enter_linked_folders_for_two_asterisks(tmp_path: Path) -> None:
    """A link that points upwards would show each file many times; one that is named is entered."""
    (tmp_path / "in" / "2026").mkdir(parents=True)
    write(tmp_path / "in" / "2026" / "1.txt", "1")
    write(tmp_path / "in" / "2.txt", "2")
    (tmp_path / "in" / "loop").symlink_to(".")
    (tmp_path / "in" / "latest").symlink_to("2026")
    assert read(tmp_path / "in" / "**" / "*.txt")[0] == [b"2", b"1"]
    assert read(tmp_path / "in" / "**")[0] == [b"2", b"1"]
    assert read(tmp_path / "in" / "lat*" / "*.txt")[0] == [b"1"]
    assert read(tmp_path / "in" / "*" / "1.txt")[0] == [b"1", b"1"]


def test_what_cannot_be_read_is_refused_at_the_start(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "*.nothing"):
        with pytest.raises(PeerError, match="there is no file in"):
            opened(path)
    with pytest.raises(PeerError, match=r"cannot read .*absent.txt: No such file"):
        opened(tmp_path / "absent.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PeerError, match="it is not a regular file"):
        opened(tmp_path / "pipe")


def test_a_position_in_a_spool_of_an_older_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    with pytest.raises(CheckpointError, match="written by a version that copied files"):
        opened(tmp_path / "in.txt", Position(1024, 5))


def failure_after_the_good_ones(path: Path, good: list[bytes], words: str, **options: Any) -> None:
    """What comes before the place that cannot be read is read, and what is wrong is raised then."""
    payloads, position = read(path, **options)
    assert payloads == good
    log = opened(path, **options)
    log.head()
    log.committed(position, None)
    with pytest.raises(PeerError, match=words):
        log.head()
    again = FileSourceConfig("Lines", str(path), **options).open_log(LogContext(Path()))
    again.require(position)
    with pytest.raises(PeerError, match=words):
        again.head()


def test_a_file_of_frames_that_ends_inside_one_fails_after_the_whole_ones(tmp_path: Path) -> None:
    (tmp_path / "in.msg").write_bytes(b"\0\0\0\1a" * 1000 + b"\0\0\0\2b")
    words = "ends inside a frame: the last 5 bytes, from byte 5000 on, are not whole"
    options = {"decoder": as_bytes, "form": "frames"}
    failure_after_the_good_ones(tmp_path / "in.msg", [b"a"] * 1000, words, **options)


def test_a_frame_of_no_possible_length_fails_after_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "in.msg").write_bytes(b"\0\0\0\1a" * 1000 + b"hello" * 50_000)
    options = {"decoder": as_bytes, "form": "frames"}
    words = r"in.msg, byte 5000: a frame of \d+ bytes is larger"
    failure_after_the_good_ones(tmp_path / "in.msg", [b"a"] * 1000, words, **options)


def test_a_torn_compressed_file_fails_where_it_is_torn(tmp_path: Path) -> None:
    (tmp_path / "torn.gz").write_bytes(gzip.compress(os.urandom(300_000))[:-1000])
    payloads, position = read(tmp_path / "torn.gz")
    assert payloads
    log = opened(tmp_path / "torn.gz")
    log.committed(position, None)
    with pytest.raises(PeerError, match=r"torn.gz after byte .*Put a whole file there"):
        log.head()
    (tmp_path / "plain.gz").write_bytes(b"not compressed")
    with pytest.raises(PeerError, match="Not a gzipped file"):
        opened(tmp_path / "plain.gz").head()


def test_a_compressed_file_is_read_forwards_by_workers(tmp_path: Path) -> None:
    """Also where another worker read what lies between, or a batch is read again."""
    lines = [f"{number:06d}" for number in range(60_000)]
    write(tmp_path / "in.gz", *lines)
    log = opened(tmp_path / "in.gz")
    pieces = log.split(START, log.advance(START, 60_000), 4)
    for number in (0, 2, 2, 1):
        found = [line for records in log.read(pieces[number][0]) for line in records.payloads]
        first = sum(piece[0].events for piece in pieces[:number])
        assert found == [line.encode() for line in lines[first : first + len(found)]]


def test_the_head_is_bounded_and_moves_with_the_batches(tmp_path: Path) -> None:
    write(tmp_path / "in.txt", *["x" * 99] * 20_000)
    source = FileSource("Lines", str(tmp_path / "in.txt"), LineCutter(), ahead_bytes=200_000)
    log = FileLog(source, "")
    log.beginning()
    head = log.head()
    assert 2_000 <= head.position.events < 4_000
    assert not head.is_ended
    assert 200_000 <= log.backlog_bytes(START, head) < 400_000
    end = log.advance(START, 10_000)
    log.split(START, end, 2)
    assert log.head().position.events > end.events


def test_batches_that_take_a_quarter_of_what_waits_grow(tmp_path: Path) -> None:
    """What is scanned ahead follows their size, up to a bound in marks."""
    lines = 100_000
    path = tmp_path / "in.txt"
    write(path, *["x" * 99] * lines)
    log = FileLog(FileSource("Lines", str(path), LineCutter(), 200_000, mark_bytes=100), "")
    log.beginning()
    place = START
    taken = []
    waiting = []
    while place.events < lines:
        waiting.append(log.backlog(place))
        end = log.advance(place, max(1, waiting[-1] // 4))
        taken.append(end.events - place.events)
        place = end
    assert 450 <= taken[0] <= 1_000
    assert max(taken) >= 3 * taken[0]
    assert max(waiting) <= MARKS_AHEAD_MAX + 1  # a mark is a line here


def test_planning_ahead_of_commits_scans_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run asks for what waits after the last commit between two plans, too."""
    scanned: list[int] = []
    read = OpenFile.read

    def counted(file: OpenFile, size: int) -> bytes:
        content = read(file, size)
        scanned.append(len(content))
        return content

    path = tmp_path / "in.txt"
    write(path, *["x" * 99] * 50_000)
    log = FileLog(FileSource("Lines", str(path), LineCutter(), 200_000, mark_bytes=1_000), "")
    committed = log.beginning()
    monkeypatch.setattr(OpenFile, "read", counted)
    place = log.advance(committed, 1_000)
    while log.backlog(place):
        following = log.advance(place, 1_000)
        assert log.backlog(committed) > log.backlog(following)
        log.split(committed, place, 2)
        log.committed(place, None)
        committed = place
        place = following

    assert place.events == 50_000
    assert sum(scanned) == path.stat().st_size


def test_a_configuration_travels() -> None:
    config = FileSourceConfig("F", "x")
    copy = pickle.loads(pickle.dumps(config))
    assert (copy.name, copy.label, copy.wire_framing) == (
        config.name,
        config.label,
        config.wire_framing,
    )
    assert copy.decoder is config.decoder
