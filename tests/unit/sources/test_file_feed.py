"""Several files, compressed files, files that were changed between two runs."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, wait_until
from wallaroo.errors import PeerError
from wallaroo.framing import Framing, frame_splitter
from wallaroo.sources.file import FileSourceConfig
from wallaroo.sources.file_feed import FileFeed

split = frame_splitter(Framing())


def write(path: Path, *lines: str) -> None:
    content = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def source(path: Path) -> FileSourceConfig:
    return FileSourceConfig("Lines", str(path))


def read(path: Path, resume: bytes = b"", runs: int = -1) -> tuple[list[bytes], bytes]:
    """Read so many runs; return the payloads and where to continue."""
    feed = FileFeed(source(path), resume)
    payloads: list[bytes] = []
    while runs and (run := feed.next_run()):
        payloads += split(run.frames)
        resume = run.resume
        runs -= 1
    return payloads, resume


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


def test_from_any_resume_on_the_rest_of_all_files_is_read(tmp_path: Path) -> None:
    lines = [f"{number:06d}" for number in range(100_000)]
    for number in range(3):
        suffix = ".gz" if number == 1 else ""
        write(tmp_path / f"{number}{suffix}", *lines[number * 30_000 : number * 30_000 + 30_000])
    payloads, resume = list[bytes](), b""
    for _ in range(20):
        some, resume = read(tmp_path, resume, runs=1)
        payloads += some
    assert payloads == [line.encode() for line in lines[:90_000]]
    write(tmp_path / "2a", "new")
    write(tmp_path / "0a", "too late")
    (tmp_path / "0").unlink()
    assert read(tmp_path, resume)[0] == [b"new"]
    (tmp_path / "2").unlink()
    assert read(tmp_path, resume)[0] == [b"new"]


@pytest.mark.parametrize("name", ["in.txt", "in.gz"])
def test_a_replaced_file_of_the_same_size_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = [f"{number:06d}" for number in range(60_000)]
    write(path, *lines)
    first, resume = read(path, runs=1)
    write(tmp_path / "copy", *lines)
    path.unlink()
    write(path, *lines)
    rest, _ = read(path, resume)
    assert first + rest == [line.encode() for line in lines]
    write(path, *lines[:50], "x" * 6, *lines[51:])
    with pytest.raises(PeerError, match=r"is not the file whose first \d+ bytes were read before"):
        read(path, resume)


def test_a_file_that_has_grown_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\n")
    _, resume = read(path)
    with path.open("ab") as file:
        file.write(b"c\n")
    assert read(path, resume)[0] == [b"c"]


def test_a_file_that_is_gone_before_its_end_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "a", *["x" * 1000] * 1000)
    write(tmp_path / "b", "y")
    _, resume = read(tmp_path, runs=1)
    (tmp_path / "a").unlink()
    with pytest.raises(PeerError, match=r"was read up to byte \d+ and is gone"):
        read(tmp_path, resume)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "*.nothing"):
        with pytest.raises(PeerError, match="there is no file in"):
            FileFeed(source(path), b"")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(os.urandom(100_000))[:-1000])
    with pytest.raises(PeerError, match=r"torn.gz after byte .*Put a whole file there"):
        read(tmp_path / "torn.gz")
    (tmp_path / "plain.gz").write_bytes(b"not compressed")
    with pytest.raises(PeerError, match="Not a gzipped file"):
        read(tmp_path / "plain.gz")


def test_an_old_resume_goes_on_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"a\nb\n")
    assert read(path, (2).to_bytes(8, "little"))[0] == [b"b"]


def test_a_pattern_is_fed_and_ends(running: Running, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number in range(3):
        write(folder / f"{number}.jsonl.gz", f'{{"file": {number}}}')
    running.start(FileSourceConfig("Lines", str(folder / "*.jsonl.gz")))  # type: ignore[arg-type]
    wait_until(lambda: running.feeders.poll() or running.source("Lines").reader.head().is_ended)
    wanted = [b'{"file": %d}' % number for number in range(3)]
    assert running.source("Lines").payloads() == wanted
