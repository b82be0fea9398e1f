"""Where a failed event came from: the user's own line, the record of the source, key and window."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wallaroo
from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import UserCodeError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Json
from wallaroo.sources import FilesSourceConfig
from wallaroo.testing import run_local
from wallaroo.user_code.references import pickle_by_name

JSON = Json(dict, on_error="dead-letter").decoder
HERE = str(Path(__file__))


@wallaroo.computation("number", on_error="dead-letter")
def number(event: dict[str, Any]) -> str:
    return str(int(event["n"]))


def letters(source: Any, folder: Path, feed: Any = None) -> list[dict[str, Any]]:
    """The dead letters of a run on a source; ``feed`` is called with the run's addresses."""
    out = folder / "dead.jsonl"
    stream = wallaroo.source(source.name, source).to(number)
    application = wallaroo.build_application(
        "app",
        stream.to_sink(wallaroo.FileSinkConfig(folder / "out.txt", form="lines")),
        dead_letters=wallaroo.FileSinkConfig(out),
    )
    options = RunOptions(status_address=None, until_now=feed is None)
    run = Run(application, options, InProcessHost(2))
    run.start()
    if feed is not None:
        feed(run.addresses)
        while not (out.exists() and out.read_text().count("\n") == 2):
            assert not run.wait(0.01), run.exception
        run.stop()
    assert run.result(180)
    return [json.loads(line) for line in out.read_text().splitlines()]


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    return f"{HERE}:{1 + next(n for n, line in enumerate(lines) if text in line)}"


def test_a_record_of_a_file_is_named_by_its_byte(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"n": 1}\n\nno JSON\n{"n": 2}\n{"n": "x"}\n')
    source = wallaroo.FileSourceConfig("in", str(file), JSON, skip_empty=True)

    decoder, step = letters(source, tmp_path)

    assert decoder["record"] == {"file": str(file), "byte": 10}
    assert step["record"] == {"file": str(file), "byte": 27}
    assert decoder["source"] == step["source"] == "in"


def test_a_record_of_one_of_many_files_is_named_by_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"n": 1}\n')
    (folder / "b.jsonl").write_text('no JSON\n{"n": "x"}\n')
    source = FilesSourceConfig("in", str(folder), JSON)

    for letter in letters(source, tmp_path):
        assert letter["record"] == {"file": str(folder / "b.jsonl")}


def test_a_frame_of_a_connection_is_named_by_the_time_of_its_receipt(tmp_path: Path) -> None:
    source = wallaroo.TCPSourceConfig("in", "127.0.0.1", 0, JSON, framing="lines")

    def feed(addresses: dict[str, Any]) -> None:
        with socket.create_connection(addresses["in"]) as client:
            client.sendall(b'no JSON\n{"n": "x"}\n')

    decoder, step = letters(source, tmp_path, feed)

    for letter in (decoder, step):
        assert datetime.now(UTC) >= datetime.fromisoformat(letter["record"].pop("received"))
        assert letter["record"] == {}


def test_a_place_is_the_users_line_where_the_function_is_ours(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("no JSON\n{}\n")
    source = wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"), JSON)

    decoder, step = letters(source, tmp_path)

    assert decoder["place"] == line_of("stream = wallaroo.source(source.name, source)")
    assert step["place"] == line_of('return str(int(event["n"]))')


def plan_of(decoder: Any, **options: Any) -> Plan:
    source = wallaroo.FileSourceConfig("in", "in", decoder, **options)
    used = wallaroo.source("in", source).to_sink(wallaroo.StdoutSinkConfig())
    return wallaroo.build_application("app", used).plan


LAYOUT = wallaroo.fixed_layout(np.dtype([("a", "<i4")]))


@pytest.mark.parametrize("name", ["default", "json", "layout", "lines"])
def test_a_function_of_ours_keeps_the_users_line_on_its_way_to_a_worker(name: str) -> None:
    import pickle

    decoders = {
        "default": wallaroo.FileSourceConfig("in", "in").decoder,
        "json": Json(int).decoder,
        "layout": LAYOUT,
        "lines": wallaroo.json_lines(),
    }
    plan = plan_of(decoders[name])
    for each in (plan, pickle.loads(pickle_by_name(plan))):
        assert each.sources[0].decoder.place == line_of('wallaroo.source("in", source).to_sink(')


def test_an_error_that_stops_the_run_names_the_record(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1\nx\n")
    source = wallaroo.FileSourceConfig("in", str(tmp_path / "in.txt"), Json(int).decoder)
    out = wallaroo.FileSinkConfig(tmp_path / "out", wallaroo.encoder(str))
    application = wallaroo.build_application("app", wallaroo.source("in", source).to_sink(out))
    run = Run(application, RunOptions(status_address=None), InProcessHost(2))
    run.begin()
    with pytest.raises(UserCodeError) as failed:
        run.result(180)
    assert failed.value.event == f"frame of 1 byte: x (file {tmp_path / 'in.txt'}, byte 2)"


class Sum(wallaroo.Aggregation[Any, int, str]):
    def initial_accumulator(self) -> int:
        return 0

    def update(self, event: Any, accumulator: int, /) -> int:
        return accumulator + 1

    def combine(self, left: int, right: int, /) -> int:
        return left + right

    def output(self, key: Any, accumulator: int, /) -> str:
        raise ValueError("no output")  # of the window


@wallaroo.key_extractor("letter")
def letter_key(event: dict[str, Any]) -> str:
    return str(event["k"])


@pytest.mark.parametrize(
    ("windows", "bounds"),
    [
        (
            wallaroo.range_windows(wallaroo.seconds(10)),
            "window from 2025-11-24 16:00:00 to 2025-11-24 16:00:10 UTC",
        ),
        (
            wallaroo.session_windows(wallaroo.seconds(1.5)),
            "window from 2025-11-24 16:00:00 to 2025-11-24 16:00:01.5 UTC",
        ),
        (
            wallaroo.count_windows(1),
            "window from 2025-11-24 16:00:00 to 2025-11-24 16:00:00.000000001 UTC",
        ),
    ],
    ids=["range", "session", "count"],
)
def test_an_error_of_a_windows_output_names_line_key_and_window(windows: Any, bounds: str) -> None:
    stream = (
        wallaroo.source("in", wallaroo.FileSourceConfig("in", "in"))
        .with_event_time(lambda event: 1_764_000_000.0)
        .key_by(letter_key)
        .to(windows.over(Sum))
    )
    application = wallaroo.build_application("app", stream.to_sink(wallaroo.StdoutSinkConfig()))
    with pytest.raises(UserCodeError) as failed:
        run_local(application, {"in": [{"k": "a"}]})
    assert failed.value.event == f"1 (key 'a', {bounds})"
    assert failed.value.place == line_of('raise ValueError("no output")')
