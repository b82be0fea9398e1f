"""The disk refuses: whatever call of a file sink fails, the next start loses and doubles
nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.file.files import committed, opened, staged
from tests.unit.sinks.identities import commit_of
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.errors import PeerError

CALLS = ("open", "write", "fsync", "rename")
CALLS_MAX = 50  # of one kind in one commit; far above what there are
SMALL, LARGE = b"small", b"x" * 20_000  # in the token, in a file


class Disk:
    """Refuses the nth call of one kind, and counts them."""

    def __init__(self, nth: int, code: int):
        self.left = nth
        self.code = code

    def refuse(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(*args: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise OSError(self.code, os.strerror(self.code))
            return call(*args, **options)

        return refusing

    def write_half(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(descriptor: int, content: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                call(descriptor, memoryview(content)[: len(content) // 2])
                raise OSError(self.code, os.strerror(self.code))
            return call(descriptor, content)

        return refusing


@contextmanager
def failing(name: str, nth: int, code: int) -> Iterator[Disk]:
    disk = Disk(nth, code)
    with pytest.MonkeyPatch.context() as patch:
        call = getattr(os, name)
        patch.setattr(os, name, disk.write_half(call) if name == "write" else disk.refuse(call))
        yield disk


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["out", "out.txt"], ids=["directory", "file"])
def test_a_call_that_fails_ends_the_run_and_the_next_start_finishes_the_batch(
    tmp_path: Path, name: str, call: str, code: int
) -> None:
    for nth in range(1, CALLS_MAX):
        folder = tmp_path / str(nth)
        config, staging = FileSinkConfig(folder / name), folder / "staging"
        folder.mkdir()
        committer = opened(config, staging)
        committer.commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
        tokens = staged(config, staging, 1, [SMALL], [LARGE])
        with failing(call, nth, code) as disk:
            try:
                committer.commit(commit_of(1), tokens)
            except PeerError as error:
                assert os.strerror(code) in str(error)  # noqa: PT017  # not every call is refused
        assert committed(folder / name) in (b"zero", b"zero" + SMALL + LARGE)
        again = opened(config, staging, 1, tokens)
        again.commit(commit_of(2), staged(config, staging, 2, [b"two"]))
        assert committed(folder / name) == b"zero" + SMALL + LARGE + b"two"
        if disk.left > 0:
            assert nth > 1
            return
    pytest.fail("the commit never went through")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["out", "out.txt"], ids=["directory", "file"])
def test_a_commit_that_failed_may_be_tried_again_by_the_same_committer(
    tmp_path: Path, name: str, call: str
) -> None:
    config, staging = FileSinkConfig(tmp_path / name), tmp_path / "staging"
    committer = opened(config, staging)
    committer.commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    tokens = staged(config, staging, 1, [SMALL], [b"more"])
    with failing(call, 1, errno.ENOSPC) as disk:
        try:
            committer.commit(commit_of(1), tokens)
        except PeerError:
            assert disk.left == 0
    committer.commit(commit_of(1), tokens)
    assert committed(tmp_path / name) == b"zero" + SMALL + b"more"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
def test_a_cut_of_half_a_batch_that_fails_ends_the_start_and_the_next_one_cuts(
    tmp_path: Path, code: int
) -> None:
    config, staging = FileSinkConfig(tmp_path / "out.txt"), tmp_path / "staging"
    committer = opened(config, staging)
    committer.commit(commit_of(0), staged(config, staging, 0, [b"zero"]))
    tokens = staged(config, staging, 1, [SMALL], [LARGE])
    with failing("write", 1, code), pytest.raises(PeerError):
        committer.commit(commit_of(1), tokens)
    assert (tmp_path / "out.txt").read_bytes() == b"zero" + SMALL[:2]

    with failing("ftruncate", 1, code), pytest.raises(PeerError, match=os.strerror(code)):
        opened(config, staging, 1, tokens)

    opened(config, staging, 1, tokens)
    assert committed(tmp_path / "out.txt") == b"zero" + SMALL + LARGE


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_output_that_cannot_be_staged_is_the_disks_fault_and_names_the_file(
    tmp_path: Path, call: str
) -> None:
    config = FileSinkConfig(tmp_path / "out")
    with (
        failing(call, 1, errno.ENOSPC),
        pytest.raises(PeerError, match=r"staging/.*\.out: No space left on device.*run again"),
    ):
        staged(config, tmp_path / "staging", 0, [LARGE])
