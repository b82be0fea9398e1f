"""Decoders of blocks: a payload with a value that Python lacks is refused by itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import wallaroo
from wallaroo.testing import run_local
from wallaroo.vectorized.arrow_ipc import ArrowIpc
from wallaroo.vectorized.checked_values import check_times
from wallaroo.vectorized.row_error import RowError

SINK = wallaroo.StdoutSinkConfig
NUMBERS = pa.schema([("a", pa.int64())])
TEXTS = pa.schema([("a", pa.string())])
TIMES = pa.schema([("a", pa.timestamp("us"))])


@wallaroo.encoder
def shown(row: Any) -> str:
    return repr(row)


def decoded(decoder: Any, payloads: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the rows, and the payloads of the dead letters."""
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, decoder))
    letters = wallaroo.FileSinkConfig("letters.jsonl")
    built = wallaroo.build_application("rows", source.to_sink(SINK(shown)), dead_letters=letters)
    done = run_local(built, {"in": payloads})
    return done.outputs, [bytes.fromhex(each["frame_hex"]) for each in done.dead_letters]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (NUMBERS, b'{"a":1}', b"null"),
        (NUMBERS, b'{"a":1}', b" \t null "),
        (None, b'{"a":1}', b"null"),
        (TEXTS, b'{"a":"\xc3\xa4"}', b'{"a":"\xff"}'),
        (None, b'{"a":"\xc3\xa4"}', b'{"a":"\xed\xa0\x80"}'),
        (TIMES, b'{"a":"9999-12-31T23:59:59"}', b'{"a":"0000-01-01T00:00:00"}'),
        (TIMES, b'{"a":"9999-12-31T23:59:59"}', b'{"a":9223372036854775807}'),
    ],
)
@pytest.mark.parametrize("is_first", [False, True])
def test_json_that_is_no_row_is_refused_by_itself(
    schema: Any, good: bytes, bad: bytes, is_first: bool
) -> None:
    decoder = wallaroo.json_lines(schema, on_error="dead-letter")
    payloads = [bad, good, good] if is_first else [good, bad, good]
    outputs, letters = decoded(decoder, payloads)
    assert (len(outputs), letters) == (2, [bad])


def test_null_by_itself_does_not_end_the_process() -> None:
    """Arrow's reader does: in a process of its own, as it would end that of all tests."""
    program = (
        "import pyarrow as pa; from wallaroo.vectorized.json_lines import JsonLines\n"
        "for payload in (b'null', b'\\xef\\xbb\\xbfnull', b'\\n null'):\n"
        "    for schema in (None, pa.schema([('a', pa.int64())])):\n"
        "        try: JsonLines(schema)([payload])\n"
        "        except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["RowError"] * 6


def test_objects_of_nulls_are_rows() -> None:
    outputs, letters = decoded(
        wallaroo.json_lines(NUMBERS, on_error="dead-letter"),
        [b'{"a":null}', b"{}", b'{"a":\n null}', b'{"b":"}null"}'],
    )
    assert (outputs, letters) == ([b"{'a': None}"] * 4, [])


def stream_of(column: Any) -> bytes:
    out = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    with pa.ipc.new_stream(out, batch.schema) as stream:
        stream.write_batch(batch)
    return out.getvalue().to_pybytes()  # type: ignore[no-any-return]


def test_arrow_streams_whose_texts_are_none_are_refused() -> None:
    read = ArrowIpc()
    good = stream_of(pa.array(["abcd"]))
    assert read([good]).num_rows == 1
    with pytest.raises(RowError, match="Invalid UTF8"):
        read([good.replace(b"abcd", b"ab\xffd")])
    before, _, after = good.rpartition(b"\0\0\0\0\4\0\0\0")  # the offsets
    outside = before + b"\0\0\0\0\xff\0\0\0" + after
    with pytest.raises(RowError, match="Offset invariant failure"):
        read([outside])
    with pytest.raises(RowError, match="out of range"):
        read([stream_of(pa.array([2**62], pa.timestamp("us")))])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2**62]], pa.list_(pa.timestamp("ms"))),
        pa.array([{"at": 2**31 - 1}], pa.struct([("at", pa.date32())])),
        pa.array([-1], pa.int64()).view(pa.timestamp("us")).cast(pa.timestamp("s"), safe=False),
        pa.array([2**62], pa.timestamp("ns")).dictionary_encode(),
        pa.array([2**62], pa.timestamp("us")).dictionary_encode(),
        pa.array([[("k", 2**62)]], pa.map_(pa.string(), pa.timestamp("s"))),
    ],
    ids=lambda column: str(column.type),
)
def test_times_are_checked_at_any_depth(column: Any) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    try:
        column.to_pylist()
    except (ValueError, OverflowError):
        with pytest.raises((ValueError, OverflowError)):
            check_times(batch)
    else:
        check_times(batch)


def test_frames_of_a_layout_that_hold_no_text_are_refused() -> None:
    texts = wallaroo.fixed_layout(np.dtype([("a", "U1")]), on_error="dead-letter")
    good, bad = "a".encode("utf-32-le"), b"\xff\xff\xff\xff"
    assert decoded(texts, [good, bad, good]) == ([b"{'a': 'a'}"] * 2, [bad])


def test_each_frame_of_a_layout_has_its_own_length_in_the_error() -> None:
    layout = wallaroo.fixed_layout(np.dtype([("a", "i4")]), on_error="dead-letter")
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, layout))
    letters = wallaroo.FileSinkConfig("letters.jsonl")
    built = wallaroo.build_application("rows", source.to_sink(SINK(shown)), dead_letters=letters)
    done = run_local(built, {"in": [b"abcde", b"", b"abcd", b"12345"]})
    errors = {(each["frame_bytes"], each["error"].split()[4]) for each in done.dead_letters}
    assert errors == {(5, "5"), (0, "0")}
