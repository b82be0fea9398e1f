"""Vectorized steps, alone and among per-event ones: words are answered with their counts so far,
and lengths of words with the sum of what came with them.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import wallaroo
from tests.conformance.apps.windowed import LATE_S, RANGE_S, SLIDE_S
from wallaroo.aggregations import Count, Max, Sum, combine_of
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


@wallaroo.batch_computation
def columns(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of ``key second number``."""
    parts = [line.split() for line in rows["line"].to_pylist()]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _, _ in parts]),
            "at": pa.array([int(second) for _, second, _ in parts]).cast(
                pa.timestamp("s", tz="UTC")
            ),
            "number": pa.array([int(number) for _, _, number in parts]),
        }
    )


@wallaroo.batch_computation("kept")
def kept(rows: pa.RecordBatch) -> Any:
    """Rows with their times: those of even numbers."""
    at = np.flatnonzero(rows["number"].to_numpy() % 2 == 0)
    return rows.take(pa.array(at)), at


@wallaroo.batch_key_extractor
def by_key(rows: pa.RecordBatch) -> pa.Array:
    return rows["key"]


@wallaroo.encoder
def encode_window(result: Any) -> str:
    found = result.value
    start = result.window.start // 10**9
    return f"{result.key} {start} {found['n']} {found['total']} {found['most']}"


def summed(inputs: Path, outputs: Path) -> Application:
    """Windows of rows."""
    config = wallaroo.FileSourceConfig("in", inputs / "in.txt", decode_lines)
    windows = wallaroo.range_windows(wallaroo.seconds(RANGE_S)).with_slide(
        wallaroo.seconds(SLIDE_S)
    )
    summary = combine_of(n=Count(), total=Sum("number"), most=Max("number"))
    pipeline = (
        wallaroo.source("in", config)
        .to(columns)
        .with_event_time("at", allow_before_1980=True, delay=wallaroo.seconds(LATE_S))
        .to(kept)
        .key_by(by_key)
        .to(windows.over(summary, with_window=True))
        .to_sink(_sink(outputs, encode_window))
    )
    return wallaroo.build_application("windows of rows", pipeline)


def in_summed(lines: list[str]) -> list[str]:
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for line in lines:
        key, at, number = line.split()
        last = int(at) // SLIDE_S * SLIDE_S
        for start in range(last - RANGE_S + SLIDE_S, last + 1, SLIDE_S):
            if int(number) % 2 == 0:
                found[start, key].append(int(number))
    return [
        f"{key} {start} {len(some)} {sum(some)} {max(some)}"
        for (start, key), some in sorted(found.items())
    ]


@wallaroo.encoder
def encode_row(row: dict[str, Any]) -> str:
    return f"{row['key']} {row['number']} {row['last']}"


def joined(inputs: Path, outputs: Path) -> Application:
    """Rows of even numbers, each with the newest odd number of its key."""
    left = _timed_rows("left", inputs)
    right = _timed_rows("right", inputs)
    late = wallaroo.seconds(LATE_S)
    timed = left.to(columns).with_event_time("at", allow_before_1980=True, delay=late)
    values = right.to(columns).with_event_time("at", allow_before_1980=True, delay=late)
    pipeline = timed.key_by(by_key).join_latest(
        values.key_by(by_key), wallaroo.with_columns(last="number"), how="inner", name="rows joined"
    )
    return wallaroo.build_application("joins of rows", pipeline.to_sink(_sink(outputs, encode_row)))


def _timed_rows(name: str, folder: Path) -> Any:
    config = wallaroo.FileSourceConfig(name, folder / f"{name}.txt", decode_lines)
    return wallaroo.source(name, config)


def in_joined(left: list[str], right: list[str]) -> list[str]:
    found = []
    for line in sorted(left, key=lambda line: int(line.split()[1])):
        key, at, number = line.split()
        known = [each.split() for each in right]
        newest = [
            (int(time), place, value)
            for place, (owner, time, value) in enumerate(known)
            if owner == key and int(time) <= int(at)
        ]
        found += [f"{key} {number} {max(newest)[2]}"] if newest else []
    return found
