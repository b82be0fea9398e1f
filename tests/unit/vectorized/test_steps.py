"""Vectorized steps in applications: what they are given, what they return, and what becomes of rows
that they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import wallaroo
from wallaroo.errors import UserCodeError
from wallaroo.protocols.framing import line_framing
from wallaroo.testing import LocalApplication, run_local, run_state_step, run_step
from wallaroo.vectorized.json_lines import JsonLines

Array = np.ndarray[Any, Any]
TRADE = np.dtype([("symbol", "S4"), ("price", ">f8"), ("size", ">i4")])
trades = wallaroo.fixed_layout(TRADE)
skipped = wallaroo.fixed_layout(TRADE, name="skipped", on_error="skip")
SINK = wallaroo.StdoutSinkConfig
VOLUME = np.dtype([("volume", "i8")])


def payload(symbol: bytes, price: float = 1.0, size: int = 1) -> bytes:
    return np.array([(symbol, price, size)], TRADE).tobytes()


PAYLOADS = [
    payload(b"ABCD"[number % 4 : number % 4 + 1], 1.5 * number, number) for number in range(40)
]


@wallaroo.encoder
def as_json(event: Any) -> str:
    return json.dumps(event, default=lambda value: value.decode())


@wallaroo.batch_key_extractor
def symbols(rows: Array) -> Array:
    return rows["symbol"]


@wallaroo.key_extractor
def symbol_of(row: dict[str, Any]) -> bytes:
    return row["symbol"]  # type: ignore[no-any-return]


@wallaroo.computation
def same(row: Any) -> Any:
    return row


@wallaroo.batch_computation
def expensive(rows: Array) -> Any:
    at = np.flatnonzero(rows["price"] > 30)
    return rows[at], at


@wallaroo.batch_state_computation("volume", state=VOLUME)
def volume(rows: Array, at: Array, states: Array, keys: Array) -> Array:
    np.add.at(states["volume"], at, rows["size"])
    out = np.empty(len(rows), [("key", "S4"), ("size", "i4")])
    out["key"] = keys[at].astype("S4")
    out["size"] = rows["size"]
    return out


class Volume:
    volume = 0


@wallaroo.state_computation("volume per event", state=Volume)
def volume_per_event(row: dict[str, Any], own: Volume) -> dict[str, Any]:
    own.volume += row["size"]
    return {"key": row["symbol"], "size": row["size"]}


def built(*steps: Any, decoder: Any = trades, encoder: Any = as_json, **more: Any) -> Any:
    pipeline: Any = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "localhost", 0, decoder))
    for step in steps:
        is_key = isinstance(step, wallaroo.KeyExtractor)
        pipeline = pipeline.key_by(step) if is_key else pipeline.to(step)
    return wallaroo.build_application("app", pipeline.to_sink(SINK(encoder)), **more)


def rows_of(application: Any, batches: int = 1, given: Any = PAYLOADS) -> list[Any]:
    done = run_local(application, {"in": given}, batches=batches, tasks=3)
    return sorted((json.loads(line) for line in done.outputs), key=repr)


MIXES: list[tuple[Any, ...]] = [
    (symbols, volume),
    (same, symbols, volume),
    (symbol_of, volume),
    (symbols, same, volume, same),
    (expensive, symbols, volume_per_event),
    (same, expensive, symbol_of, same, volume),
    (symbols, volume_per_event),
    (symbols, expensive, volume),
]


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: " ".join(step.step_name for step in mix))
def test_steps_for_blocks_and_for_events_mix_freely(mix: tuple[Any, ...], batches: int) -> None:
    rows = [
        {"key": "ABCD"[number % 4], "size": number}
        for number in range(40)
        if expensive not in mix or number * 1.5 > 30
    ]

    application = built(*mix)

    assert rows_of(application, batches) == sorted(rows, key=repr)


@pytest.mark.parametrize("mix", [(symbols, volume), (symbol_of, volume_per_event)], ids=len)
def test_state_is_the_same_and_lives_on(mix: tuple[Any, ...]) -> None:
    done = run_local(built(*mix), {"in": PAYLOADS}, batches=4)

    states = done.state(mix[1].step_name)
    volumes = {
        key: own["volume"] if isinstance(own, dict) else own.volume for key, own in states.items()
    }
    assert volumes == {
        bytes([letter]): sum(range(place, 40, 4)) for place, letter in enumerate(b"ABCD")
    }


def test_what_an_attempt_did_is_not_kept() -> None:
    running = LocalApplication(built(symbols, volume))
    running.send("in", *PAYLOADS)
    running.attempt()
    running.batch()

    assert running.result().state("volume")[b"A"] == {"volume": sum(range(0, 40, 4))}


def test_frames_of_another_length_are_refused_one_by_one() -> None:
    given = [PAYLOADS[0], b"short", PAYLOADS[1], b""]

    done = run_local(built(decoder=skipped), {"in": given})

    assert len(done.outputs) == 2
    assert done.errors == {"skipped": 2}


def test_a_frame_of_another_length_stops_the_run_and_is_shown() -> None:
    with pytest.raises(UserCodeError, match="the payload has 5 bytes, and the layout 16"):
        run_local(built(), {"in": [PAYLOADS[0], b"short"]})


def test_frames_keep_their_order_though_some_are_gathered() -> None:
    """What arrives at another time is another chunk; one of another length is read by itself."""
    running = LocalApplication(built(decoder=skipped, encoder=encode_bytes), tasks=1)
    for number, one in enumerate([*PAYLOADS[:7], b"short", *PAYLOADS[7:]]):
        running.send("in", one)
        running.clock.advance(0.5 if number % 3 else 0)

    assert running.batch()["stdout"] == PAYLOADS


def refusing(policy: str, error: Callable[[Array], Exception]) -> Any:
    @wallaroo.batch_computation("refuse", on_error=policy)
    def refuse(rows: Array) -> Array:
        if (rows["size"] % 10 == 3).any():
            raise error(rows)
        return rows

    return refuse


def by_row(rows: Array) -> Exception:
    return wallaroo.RowError(rows["size"] % 10 == 3, "unlucky")


def by_index(rows: Array) -> Exception:
    return wallaroo.RowError(int(np.flatnonzero(rows["size"] % 10 == 3)[0]), ValueError("unlucky"))


def whole(rows: Array) -> Exception:
    return ValueError("unlucky")


@pytest.mark.parametrize("error", [by_row, by_index], ids=["booleans", "an index"])
def test_rows_that_a_function_names_are_skipped_and_the_others_go_on(error: Any) -> None:
    done = run_local(built(refusing("skip", error)), {"in": PAYLOADS})

    assert len(done.outputs) == 36
    assert done.errors == {"refuse": 4}


def test_where_no_row_is_named_the_block_is_skipped() -> None:
    done = run_local(built(refusing("skip", whole)), {"in": PAYLOADS})

    assert done.outputs == []
    assert done.errors == {"refuse": 40}


def test_rows_go_to_the_dead_letters_with_their_keys() -> None:
    application = built(symbols, refusing("dead-letter", by_row), dead_letters=SINK(None))

    done = run_local(application, {"in": PAYLOADS})

    letters = done.dead_letters
    assert len(done.outputs) == 36
    assert len(letters) == 4
    assert {letter["kind"] for letter in letters} == {"batch_computation"}
    assert "'size': 3" in " ".join(letter["event"] for letter in letters)
    assert all("unlucky" in letter["error"] for letter in letters)


def test_an_error_that_stops_the_run_shows_the_row() -> None:
    with pytest.raises(UserCodeError, match="unlucky") as caught:
        run_local(built(refusing("stop", by_row)), {"in": PAYLOADS})

    assert "'size': 3" in caught.value.event
    assert "test_steps.py" in caught.value.place


def test_an_error_of_a_block_shows_how_many_rows_it_has() -> None:
    with pytest.raises(UserCodeError, match="a block of 40 rows, the first one"):
        run_local(built(refusing("stop", whole)), {"in": PAYLOADS}, tasks=1)


@pytest.mark.parametrize("rows", [99, [-1], "all", []], ids=repr)
def test_rows_that_there_are_not_fail_the_block(rows: Any) -> None:
    @wallaroo.batch_computation("wrong", on_error="skip")
    def wrong(given: Array) -> Array:
        raise wallaroo.RowError(rows)

    done = run_local(built(wrong), {"in": PAYLOADS})

    assert done.errors == {"wrong": 40}


@wallaroo.batch_computation("fewer")
def fewer(rows: Array) -> Array:
    return rows[::2]


def test_rows_without_known_keys_are_refused_where_keys_are_needed() -> None:
    with pytest.raises(
        UserCodeError, match=r"'fewer' returned .* rows for .* Return \(rows, indexes\)"
    ):
        run_local(built(symbols, fewer, volume), {"in": PAYLOADS})


def test_rows_without_known_keys_may_leave() -> None:
    done = run_local(built(symbols, volume, fewer), {"in": PAYLOADS}, tasks=1)

    assert len(done.outputs) == 20


@wallaroo.batch_computation("numpy")
def with_numpy(rows: Array) -> Array:
    return rows[rows["size"] > 36]


@wallaroo.batch_computation("arrow")
def with_arrow(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.filter(pa.compute.greater(rows["size"], 36))


@wallaroo.batch_computation("table")
def with_table(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([with_arrow.function(rows)])


@wallaroo.batch_computation("pandas")
def with_pandas(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["size"] > 36]


@wallaroo.batch_computation("list")
def with_list(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["size"] > 36]


@wallaroo.batch_computation("polars")
def with_polars(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("size") > 36)


FORMS = [with_numpy, with_arrow, with_table, with_pandas, with_polars, with_list]


@pytest.mark.parametrize("second", FORMS, ids=lambda step: step.step_name)
@pytest.mark.parametrize("first", FORMS, ids=lambda step: step.step_name)
def test_forms_follow_one_another(first: Any, second: Any) -> None:
    expected = [
        {"symbol": "ABCD"[number % 4], "price": 1.5 * number, "size": number}
        for number in (37, 38, 39)
    ]

    assert rows_of(built(first, second)) == sorted(expected, key=repr)
    assert rows_of(built(first, symbols, second)) == sorted(expected, key=repr)


def test_events_that_are_numbers_become_an_array() -> None:
    @wallaroo.batch_computation
    def double(rows: Array) -> Array:
        return rows * 2

    assert run_step(double, [[1, 2], np.array([3])])[0].tolist() == [2, 4]


@wallaroo.batch_encoder
def encode_bytes(rows: Array) -> Array:
    return rows


def test_an_array_is_encoded_row_by_row() -> None:
    done = run_local(built(encoder=encode_bytes), {"in": PAYLOADS})

    assert done.outputs == PAYLOADS


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (np.array([b"a", b"bc"]), [b"a", b"bc"]),
        (np.array(["é", ""]), ["é".encode(), b""]),
        (pa.array(["a", "é", None]), [b"a", "é".encode()]),
        (pa.array([b"a", b"bc"]).slice(1), [b"bc"]),
        (["a", b"b", None], [b"a", b"b"]),
        (pd.Series(["a", "b"]), [b"a", b"b"]),
        (np.array([[65, 66]], np.uint8), [b"AB"]),
        (None, []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_encoders_of_blocks_return(result: Any, outputs: list[bytes]) -> None:
    @wallaroo.batch_encoder
    def encode(rows: list[Any]) -> Any:
        return result

    count = 1 if result is None else len(result)
    assert run_step(encode, [list(range(count))]) == outputs


@pytest.mark.parametrize(
    "result",
    [[b"a"], [], [b"a", b"b", b"c"], pa.array(["a"])],
    ids=["fewer", "none", "more", "fewer in Arrow"],
)
def test_an_encoder_of_blocks_returns_an_output_per_row(result: Any) -> None:
    @wallaroo.batch_encoder
    def encode(rows: list[Any]) -> Any:
        return result

    with pytest.raises(UserCodeError, match=f"it returned {len(result)} outputs for 2 rows"):
        run_step(encode, [[1, 2]])


def test_an_output_that_is_no_text_is_the_only_one_left_out() -> None:
    @wallaroo.batch_encoder(on_error="skip")
    def encode(rows: list[Any]) -> Any:
        return [row.get("text") for row in rows]

    events = [{"text": "a"}, {"text": "\ud800"}, {"text": 5}, {}, {"text": "b"}]
    done = run_local(built(same, encoder=encode), {"in": events}, tasks=1)

    assert done.outputs == [b"a", b"b"]
    assert done.errors == {"encode": 2}


def test_none_among_rows_is_no_event() -> None:
    """As ``None`` filters the event in a per-event step; the others keep their keys."""

    @wallaroo.batch_computation
    def filtering(rows: list[Any]) -> list[Any]:
        return [row if row["size"] > 37 else None for row in rows]

    @wallaroo.encoder
    def size(row: Any) -> str:
        return str(row["size"])

    done = run_local(built(filtering, encoder=size), {"in": PAYLOADS}, tasks=1)
    assert done.outputs == [b"38", b"39"]
    assert done.dropped == {"filtering": {"filtered": 38}}
    assert [row["size"] for row in rows_of(built(symbols, filtering, volume_per_event))] == [38, 39]


def test_an_encoder_that_returns_one_value_is_wrong() -> None:
    @wallaroo.batch_encoder
    def encode(rows: list[Any]) -> Any:
        return b"all of them"

    with pytest.raises(UserCodeError, match="an encoder of blocks returns a list"):
        run_step(encode, [[1, 2]])


def test_a_state_step_by_itself() -> None:
    rows = np.array([(b"A", 1.0, 3), (b"B", 1.0, 4), (b"A", 1.0, 5)], TRADE)

    outputs, states = run_state_step(volume, [(rows["symbol"], rows)], {b"B": {"volume": 10}})

    assert [keys for keys, _ in outputs] == [[b"A", b"B", b"A"]]
    assert states == {b"A": {"volume": 8}, b"B": {"volume": 14}}


def test_a_key_extractor_by_itself() -> None:
    assert run_step(symbols, [np.frombuffer(PAYLOADS[0], TRADE)]) == [[b"A"]]


def test_a_decoder_by_itself() -> None:
    [rows] = run_step(trades, [PAYLOADS])

    assert rows["size"].tolist() == list(range(40))


class Sizes(wallaroo.Aggregation[dict[str, Any], int, dict[str, Any]]):
    def initial_accumulator(self) -> int:
        return 0

    def update(self, row: dict[str, Any], size: int, /) -> int:
        return size + int(row["size"])

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, key: Any, size: int, /) -> dict[str, Any]:
        return {"key": key, "size": size}


def second(row: dict[str, Any]) -> float:
    return float(row["size"] // 8)


@wallaroo.batch_computation("even")
def even(rows: Array) -> Array:
    return rows[rows["size"] % 2 == 0]


@wallaroo.batch_computation("doubled")
def doubled(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "size": 2 * row["size"]} for row in rows]


@wallaroo.batch_state_computation("total size", state=VOLUME)
def total_size(rows: list[dict[str, Any]], at: Array, states: Array) -> list[int]:
    np.add.at(states["volume"], at, [row["size"] for row in rows])
    return [int(states["volume"][number]) for number in at]


def test_a_vectorized_step_right_after_a_shuffle_takes_events_with_times() -> None:
    """Events that carry times are gathered into blocks for it, as those without times are."""
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", trades))
    pipeline = (
        source.with_event_time(second, allow_before_1980=True).key_by(symbol_of).to(total_size)
    )
    application = wallaroo.build_application("timed", pipeline.to_sink(SINK(as_json)))

    done = run_local(application, {"in": [payload(b"A", size=size) for size in (1, 2, 4)]})

    assert done.outputs == [b"7", b"7", b"7"]


@pytest.mark.parametrize("batches", [1, 4])
def test_windows_take_rows_that_vectorized_steps_made(batches: int) -> None:
    """Blocks first, then event time and windows, then blocks again."""
    source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "localhost", 0, trades))
    windows = wallaroo.range_windows(wallaroo.seconds(1)).over(Sizes)
    pipeline = (
        source.to(even)
        .with_event_time(second, allow_before_1980=True)
        .key_by(symbol_of)
        .to(windows)
        .to(doubled)
    )
    application = wallaroo.build_application("app", pipeline.to_sink(SINK(as_json)))

    sums: dict[tuple[str, int], int] = {}
    for number in range(0, 40, 2):
        key = "ABCD"[number % 4], number // 8
        sums[key] = sums.get(key, 0) + number
    expected = [{"key": key, "size": 2 * size} for (key, _), size in sums.items()]
    assert rows_of(application, batches) == sorted(expected, key=repr)


LOADED: list[str] = []


def load() -> str:
    LOADED.append("model")
    return "model"


@wallaroo.batch_computation("score", setup=load, batch=16)
def score(rows: Array, model: str) -> list[Any]:
    return [{"rows": len(rows), "model": model}] * len(rows)


def test_setup_is_called_once_and_calls_have_a_bound() -> None:
    LOADED.clear()

    rows = rows_of(built(score), batches=2) + rows_of(built(score))

    assert LOADED == ["model"]
    assert {row["model"] for row in rows} == {"model"}
    assert max(row["rows"] for row in rows) <= 16


def test_events_gather_into_blocks_of_what_a_step_takes() -> None:
    done = run_local(built(same, score), {"in": PAYLOADS}, tasks=1)

    assert {json.loads(line)["rows"] for line in done.outputs} == {16, 8}


def test_a_setup_that_fails_is_shown() -> None:
    def missing() -> None:
        raise FileNotFoundError("no model")

    @wallaroo.batch_computation("score", setup=missing)
    def own(rows: Array, model: str) -> Array:
        return rows

    with pytest.raises(UserCodeError, match="no model"):
        run_local(built(own), {"in": PAYLOADS})


def lines_application(decoder: Any, tmp_path: Path, *steps: Any) -> Any:
    config = wallaroo.FileSourceConfig("in", tmp_path / "in", decoder)
    pipeline: Any = wallaroo.source("in", config)
    for step in steps:
        pipeline = pipeline.to(step)
    return wallaroo.build_application("app", pipeline.to_sink(SINK(as_json)))


def test_json_lines_become_columns(tmp_path: Path) -> None:
    lines = [json.dumps({"a": number, "b": "x" * number}).encode() for number in range(5)]

    done = run_local(lines_application(wallaroo.json_lines(), tmp_path), {"in": lines})

    assert [json.loads(line) for line in done.outputs] == [json.loads(line) for line in lines]


def test_lines_that_are_no_json_are_refused_one_by_one(tmp_path: Path) -> None:
    lines = [b'{"a": 1}', b"{", b'{"a": 2}', b"[1]", b"", b'{"a": "x"}']
    decoder = wallaroo.json_lines(pa.schema([("a", pa.int64())]), on_error="skip")

    done = run_local(lines_application(decoder, tmp_path), {"in": lines})

    assert [json.loads(line) for line in done.outputs] == [{"a": 1}, {"a": 2}]
    assert done.errors == {"json lines": 4}


def test_each_refused_line_has_its_own_reason() -> None:
    lines = [b"{", b'{"a": "x"}', b"[1]", b"{"]
    decoder = wallaroo.json_lines(pa.schema([("a", pa.int64())]), on_error="dead-letter")
    application = built(decoder=decoder, dead_letters=wallaroo.FileSinkConfig("dead.jsonl"))

    letters = run_local(application, {"in": lines}, tasks=1).dead_letters

    reasons = {bytes.fromhex(letter["frame_hex"]): letter["error"] for letter in letters}
    assert "not JSON" in reasons[b"{"]
    assert "does not fit the schema" in reasons[b'{"a": "x"}']
    assert "not list" in reasons[b"[1]"]
    assert len(letters) == 4


def test_json_in_frames_may_span_lines() -> None:
    given = [b'{"a":\n 1}', b'{"a": 2}']

    done = run_local(built(decoder=wallaroo.json_lines()), {"in": given})

    assert [json.loads(line) for line in done.outputs] == [{"a": 1}, {"a": 2}]


def stream(**columns: Any) -> bytes:
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def test_arrow_streams_become_rows() -> None:
    given = [stream(a=[1, 2], b=[3, 4]), stream(a=[5], b=[6])]

    done = run_local(built(decoder=wallaroo.arrow_ipc(["a"])), {"in": given})

    assert [json.loads(line) for line in done.outputs] == [{"a": 1}, {"a": 2}, {"a": 5}]


def test_frames_that_are_no_arrow_stream_are_refused_one_by_one() -> None:
    decoder = wallaroo.arrow_ipc(on_error="skip")
    given = [stream(a=[1]), b"no stream", stream(b=[1]), stream(a=[2])]

    done = run_local(built(decoder=decoder), {"in": given})

    assert [json.loads(line) for line in done.outputs] == [{"a": 1}, {"b": 1}, {"a": 2}]
    assert done.errors == {"arrow ipc": 1}


def test_a_dead_letter_of_a_layout_is_the_frame() -> None:
    decoder = wallaroo.fixed_layout(TRADE, on_error="dead-letter")

    done = run_local(built(decoder=decoder, dead_letters=SINK(None)), {"in": [b"short"]})

    assert [letter["frame_hex"] for letter in done.dead_letters] == [b"short".hex()]


def test_values_go_into_an_application_of_blocks() -> None:
    given = [{"symbol": b"A", "price": 2.0, "size": 3}]

    assert rows_of(built(symbols, volume), given=given) == [{"key": "A", "size": 3}]


NUMBERS = pa.schema([("a", pa.int64())])


@pytest.mark.parametrize("schema", [NUMBERS, None], ids=["schema", "none"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("wrong", [b"null", b" null ", b'{"a":1}null', b"[]", b"7"])
def test_a_payload_that_is_no_object_is_refused_alone(
    wrong: bytes, place: int, schema: Any
) -> None:
    payloads = [b'{"a":1}', b'{"a":2}']
    payloads.insert(place, wrong)
    decoder = wallaroo.json_lines(schema, on_error="skip")

    done = run_local(built(decoder=decoder), {"in": payloads}, tasks=1)

    assert [json.loads(output) for output in done.outputs] == [{"a": 1}, {"a": 2}]
    assert done.errors == {"json lines": 1}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (pa.string(), b'{"a":"\xff"}'),
        (pa.string(), b'{"a":"x","unused":"\xff"}'),
        (pa.timestamp("us"), b'{"a":"0000-01-01T00:00:00"}'),
        (pa.date32(), b'{"a":2147483647}'),
        (pa.int64(), b'{"a":9223372036854775808}'),
    ],
    ids=repr,
)
def test_values_that_no_event_can_have_are_refused_by_the_decoder(kind: Any, wrong: bytes) -> None:
    decoder = wallaroo.json_lines(pa.schema([("a", kind)]), on_error="dead-letter")
    application = built(decoder=decoder, dead_letters=SINK(None))

    done = run_local(application, {"in": [b"{}", wrong, b'{"a":null}']}, tasks=1)

    assert [json.loads(output) for output in done.outputs] == [{"a": None}, {"a": None}]
    assert [letter["frame_hex"] for letter in done.dead_letters] == [wrong.hex()]


def test_objects_that_are_nested_too_deeply_are_refused() -> None:
    """Arrow's reader would end the process, also if the levels are lines of their own."""
    begin, end = b'{"a":', b"}"
    flat = begin * 200 + b"1" + end * 200
    deep = begin * 30_000 + b"1" + end * 30_000
    decode = JsonLines()

    with pytest.raises(wallaroo.RowError, match="more than 250 levels deep") as refused:
        decode([flat, deep, b"{", deep])

    assert refused.value.rows == [1, 2, 3]
    assert decode([flat]).num_rows == 1
    lines = b"\n".join([begin] * 30_000 + [b"1"] + [end] * 30_000) + b"\n"
    assert decode.rows(lines, line_framing()) is None


def test_texts_may_have_brackets() -> None:
    line = json.dumps({"a": "[{" * 1000}).encode()

    done = run_local(built(decoder=wallaroo.json_lines()), {"in": [line, line]})

    assert [json.loads(output) for output in done.outputs] == [json.loads(line)] * 2


def test_payloads_without_common_types_are_read_in_parts() -> None:
    payloads = [b'{"a":1}\r', b' {"a":"x"}', b'{"a":[1]}', b'{"b":true}']

    done = run_local(built(decoder=wallaroo.json_lines()), {"in": payloads}, tasks=1)

    rows = [json.loads(output) for output in done.outputs]
    assert [row.get("a") for row in rows] == [1, "x", [1], None]


def test_a_refused_value_is_shown_with_its_column() -> None:
    decoder = wallaroo.json_lines(NUMBERS)

    with pytest.raises(UserCodeError, match="column 'a' is int64, not \"x\""):
        run_step(decoder, [[b'{"a":1}', b'{"a":"x"}']])


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.map_(pa.string(), pa.int64())], ids=str)
def test_a_schema_that_no_json_fits_is_refused(kind: Any) -> None:
    with pytest.raises(wallaroo.errors.WallarooParameterError, match=r"\(column 'b'\)"):
        wallaroo.json_lines(pa.schema([("a", pa.int64()), ("b", kind)]))

    wallaroo.json_lines(pa.schema([pa.field("a", pa.int64(), nullable=False)]))


def test_refused_frames_of_a_layout_have_their_own_reasons_in_order() -> None:
    decoder = wallaroo.fixed_layout(TRADE, on_error="dead-letter")
    application = built(decoder=decoder, dead_letters=SINK(None))

    letters = run_local(application, {"in": [b"1", b"", b"123"]}, tasks=1).dead_letters

    assert [letter["error"].split("has ")[1][:7] for letter in letters] == [
        "1 bytes",
        "0 bytes",
        "3 bytes",
    ]


@pytest.mark.parametrize("order", "<>")
def test_a_frame_whose_text_has_no_characters_is_refused_alone(order: str) -> None:
    layout = np.dtype([("n", "u1"), ("text", f"{order}U2")])
    frames = np.array([(1, "ab"), (2, "cd"), (3, "\U0010ffff")], layout)
    payloads = [frame.tobytes() for frame in frames]
    payloads[1] = payloads[1][:1] + b"\xff" * 4 + payloads[1][5:]
    decoder = wallaroo.fixed_layout(layout, on_error="skip")

    done = run_local(built(decoder=decoder), {"in": payloads}, tasks=1)

    assert [json.loads(output)["text"] for output in done.outputs] == ["ab", "\U0010ffff"]
    assert done.errors == {"fixed layout": 1}


def test_a_damaged_arrow_stream_is_refused() -> None:
    """Its offsets point beyond its texts, where other memory is."""
    whole = stream(a=["abc", "de"])
    ends = whole.index(b"\0\0\0\0\3\0\0\0\5\0\0\0")
    beyond = whole[: ends + 4] + b"\xff\xff\xff\x7f" * 2 + whole[ends + 12 :]
    no_text = whole.replace(b"abcde", b"ab\xffde")
    decoder = wallaroo.arrow_ipc(on_error="skip")

    done = run_local(built(decoder=decoder), {"in": [whole, beyond, no_text, whole]})

    assert [json.loads(output)["a"] for output in done.outputs] == ["abc", "de"] * 2
    assert done.errors == {"arrow ipc": 2}
