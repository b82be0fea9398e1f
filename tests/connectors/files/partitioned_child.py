"""A driver in small, to be killed: commits rows of some hours to folders, and marks hours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from tests.connectors.file.files import staged
from tests.connectors.files.s3.server import options_of
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.engine.blocks.ordered_keys import TIME_MAX
from wallaroo.sinks import RollingSinkConfig

BATCHES = 6
HOUR_NS = 3_600_000_000_000
COUNTRIES = ("de", "a/b")
COLUMNS = {"at": "timestamp[us]", "country": "string", "n": "int64"}


def rows_of(batch: int) -> list[tuple[datetime, str, int]]:
    """Return a batch's rows: two batches fill an hour."""
    at = datetime(1970, 1, 1, batch // 2, 30, tzinfo=UTC).replace(tzinfo=None)
    return [(at, country, 10 * batch + n) for n, country in enumerate(COUNTRIES)]


def config_at(folder: Path, s3_port: int = 0) -> RollingSinkConfig:
    """Return the sink, which writes a file of each folder for two batches or so."""
    return RollingSinkConfig(
        f"s3://lake/{folder.name}" if s3_port else str(folder / "out"),
        columns=COLUMNS,
        options=options_of(s3_port) if s3_port else {},
        roll_bytes=200,
        form="csv",
        partition_by=("dt(at)", "hour(at)", "country"),
        mark_success=True,
    )


def main(place: str, s3_port: str = "0") -> None:
    folder = Path(place)
    config = config_at(folder, int(s3_port))
    assert config.encoder is not None
    staging, log = folder / "staging", folder / "commits.jsonl"
    commits = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    committer = config.committer("s", staging, True)
    committer.recover(history_to(len(commits) - 1), commits[-1] if commits else [])
    if commits:
        committer.passed(len(commits) - 1, watermark_after(len(commits) - 1))
    for batch in range(len(commits), BATCHES):
        outputs = [config.encoder.function(row) for row in rows_of(batch)]
        tokens = staged(config, staging, batch, outputs)  # type: ignore[arg-type]
        with log.open("a") as file:
            file.write(json.dumps(tokens) + "\n")
        committer.commit(commit_of(batch), tokens)
        committer.passed(batch, watermark_after(batch))
    committer.close(180.0)


def watermark_after(batch: int) -> int:
    """Return the watermark in a batch's commit."""
    return TIME_MAX if batch == BATCHES - 1 else (batch + 1) // 2 * HOUR_NS
