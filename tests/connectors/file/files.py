"""File sinks in tests: stage, open, and read as an exact reader does."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.forks import Forks
from tests.unit.sinks.identities import INLINE_BYTES_MAX, history_to
from wallaroo.connectors.file.committer import FileCommitter
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.durable.commit_id import CommitHistory
from wallaroo.sinks.interface import WriteContext


def staged(config: FileSinkConfig, staging: Path, batch: int, *parts: list[bytes]) -> list[object]:
    """What the tasks of a batch staged, as its tokens."""
    staging.mkdir(exist_ok=True)
    tokens = []
    for task, outputs in enumerate(parts):
        context = WriteContext("s", batch, task, "a", staging, True, INLINE_BYTES_MAX)
        writer = config.writer(context)
        writer.write(outputs if config.encoder is None else config.encoder.pack_all(outputs))
        tokens.append(writer.prepare())
    return tokens


def opened(
    config: FileSinkConfig,
    staging: Path,
    history: CommitHistory | int = -1,
    tokens: list[object] | None = None,
    sink: str = "s",
) -> FileCommitter:
    """A committer that has recovered."""
    committer = config.committer(sink, staging, True)
    found = history_to(history) if isinstance(history, int) else history
    committer.recover(found, tokens or [])
    return committer


def sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".committed")


def committed(path: Path) -> bytes:
    """What an exact reader sees."""
    if path.suffix:
        return path.read_bytes()[: json.loads(sidecar(path).read_text())["length"]]
    return b"".join(part.read_bytes() for part in sorted(path.glob("part-*")))


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def killed_at(
    driver: Forks,
    point: str,
    path: Path,
    staging: Path,
    number: int,
    tokens: list[object],
    verb: str = "recover",
    is_overwriting: bool = False,
) -> bool:
    """Let a process of ``file_child`` recover the sink, or roll it back; whether it died at the
    point.
    """
    arguments = json.dumps([str(path), str(staging), verb, number, tokens, is_overwriting])
    return driver.run(arguments, WALLAROO_FAULT=point)[0] == -signal.SIGKILL
