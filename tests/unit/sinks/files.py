"""File sinks in tests: stage, open, and read as an exact reader does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.sinks.identities import history_to
from wallaroo.identity import CommitHistory
from wallaroo.sinks.file.committer import FileCommitter
from wallaroo.sinks.file.config import FileSinkConfig
from wallaroo.sinks.interface import WriteContext

ROOT = Path(__file__).parents[3]


def staged(config: FileSinkConfig, staging: Path, batch: int, *parts: list[bytes]) -> list[object]:
    """What the tasks of a batch staged, as its tokens."""
    staging.mkdir(exist_ok=True)
    tokens = []
    for task, outputs in enumerate(parts):
        writer = config.writer(WriteContext("s", batch, task, "a", staging, True))
        writer.write(outputs)
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


RECOVER = """
import json, sys
from pathlib import Path
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.sinks.file.config import FileSinkConfig
path, staging, verb, number, tokens, is_overwriting = json.loads(sys.argv[1])
committer = FileSinkConfig(path, overwrite=is_overwriting).committer("s", Path(staging), True)
if verb == "recover":
    committer.recover(history_to(number), tokens)
else:
    committer.rollback(commit_of(number), tokens)
"""


def killed_at(
    point: str,
    path: Path,
    staging: Path,
    number: int,
    tokens: list[object],
    verb: str = "recover",
    is_overwriting: bool = False,
) -> bool:
    """Let a process recover the sink, or roll it back; whether it died at the point."""
    arguments = json.dumps([str(path), str(staging), verb, number, tokens, is_overwriting])
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "WALLAROO_FAULT": point,
    }
    command = [sys.executable, "-c", RECOVER, arguments]
    return subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
