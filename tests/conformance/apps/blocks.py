"""Vectorized steps, alone and among per-event ones: words are answered with their counts so far,
and lengths of words with the sum of what came with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import wallaroo
from wallaroo.api.application import Application
from wallaroo.vectorized.grouping import running_count, running_sum

Array = np.ndarray[Any, Any]


@wallaroo.batch_decoder
def decode_lines(payloads: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"line": pa.array(payloads).cast(pa.string())})


@wallaroo.batch_computation("words", on_error="skip")
def words(rows: pa.RecordBatch) -> pa.RecordBatch:
    wrong = pc.match_substring(rows["line"], "?").to_numpy(zero_copy_only=False)
    if wrong.any():
        raise wallaroo.RowError(wrong, "a question")
    return pa.RecordBatch.from_pydict(
        {"word": pc.list_flatten(pc.split_pattern(rows["line"], " "))}
    )


@wallaroo.batch_key_extractor
def by_word(rows: pa.RecordBatch) -> pa.Array:
    return rows["word"]


@wallaroo.batch_state_computation("count", state=[("count", "i8")])
def count(rows: pa.RecordBatch, at: Array, states: Array) -> pa.RecordBatch:
    counts = states["count"][at] + running_count(at)
    np.add.at(states["count"], at, 1)
    return pa.RecordBatch.from_pydict({"word": rows["word"], "count": counts})


@wallaroo.computation("exclaim")
def exclaim(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "word": row["word"] + "!"}


@wallaroo.key_extractor
def by_length(row: dict[str, Any]) -> int:
    return len(row["word"])


@wallaroo.batch_state_computation("sum", state=[("sum", "i8")])
def add_up(rows: pa.RecordBatch, at: Array, states: Array) -> pa.RecordBatch:
    counts = rows["count"].to_numpy()
    sums = states["sum"][at] + running_sum(at, counts)
    np.add.at(states["sum"], at, counts)
    return pa.RecordBatch.from_pydict({"word": rows["word"], "count": counts, "sum": sums})


@wallaroo.encoder
def encode_count(row: dict[str, Any]) -> str:
    return f"{row['word']} {row['count']}"


@wallaroo.batch_encoder
def encode_sums(rows: pa.RecordBatch) -> list[str]:
    columns = (rows["word"], rows["count"], rows["sum"])
    return [
        f"{len(word)} {word} {n} {s}"
        for word, n, s in zip(*(c.to_pylist() for c in columns), strict=True)
    ]


def _sink(folder: Path, encoder: Any) -> wallaroo.FileSinkConfig:
    return wallaroo.FileSinkConfig(folder / "out.txt", encoder, form="lines")


def _words(folder: Path) -> Any:
    config = wallaroo.FileSourceConfig("in", folder / "in.txt", decode_lines)
    return wallaroo.source("in", config).to(words)


def counted(inputs: Path, outputs: Path) -> Application:
    """Blocks from the source to the state."""
    pipeline = _words(inputs).key_by(by_word).to(count).to_sink(_sink(outputs, encode_count))
    return wallaroo.build_application("blocks", pipeline)


def mixed(inputs: Path, outputs: Path) -> Application:
    """Blocks, events, blocks."""
    pipeline = (
        _words(inputs)
        .key_by(by_word)
        .to(count)
        .to(exclaim)
        .key_by(by_length)
        .to(add_up)
        .to_sink(_sink(outputs, encode_sums))
    )
    return wallaroo.build_application("blocks and events", pipeline)
