"""A run on a Kafka source, on the host without Spark."""

from __future__ import annotations

import http.client
import json
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

import wallaroo
from tests.connectors.kafka.broker import Broker
from tests.unit.monitoring.status_api.fakes import authorization
from tests.unit.sources.own import copying
from wallaroo.aggregations import Count
from wallaroo.dataflow.plan.json import describe
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.monitoring.status_api.discovery import running
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources import KafkaRecord
from wallaroo.testing import run_local

pytestmark = pytest.mark.kafka
Eventually = Callable[..., None]


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def text(value: bytes) -> str:
    return value.decode()


@wallaroo.decoder(header_length=4, length_fmt=">I", pure=True)
def place(record: KafkaRecord) -> str:
    return f"{record.partition}:{record.offset}"


@wallaroo.key_extractor
def whole(event: str) -> str:
    return event


@wallaroo.computation(name="same")
def same(event: str) -> str:
    return event


def source(broker: Broker, topic: str, **options: object) -> wallaroo.KafkaSourceConfig[str]:
    fields = {"decoder": text, "until_now": True, "group": "", **options}
    return wallaroo.KafkaSourceConfig("in", topic, broker.address, **fields)  # type: ignore[arg-type]


def run(folder: Path, config: wallaroo.KafkaSourceConfig[str]) -> Run:
    options = RunOptions(checkpoint=folder / "state", status_address=None)
    made = Run(copying(config, folder / "out.txt"), options, InProcessHost(2))
    made.begin()
    return made


def produce(broker: Broker, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def test_bounded_runs_read_every_record_once(broker: Broker, topic: str, tmp_path: Path) -> None:
    for number in range(2):
        produce(broker, topic, *(f"{number}.{n}" for n in range(50)))
        made = run(tmp_path, source(broker, topic))
        assert made.wait(400)
        assert (made.exception, made.status().state) == (None, "finished")
    expected = [f"{number}.{n}" for number in range(2) for n in range(50)]
    assert (tmp_path / "out.txt").read_text().split() == expected


def test_a_run_refuses_to_start_where_retention_took_what_was_not_processed(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    produce(broker, topic, "a")
    assert run(tmp_path, source(broker, topic)).wait(400)
    produce(broker, topic, "b", "c")
    broker.admin.delete_records(topic, 0, 3)

    refused = run(tmp_path, source(broker, topic))
    assert refused.wait(400)

    assert isinstance(refused.exception, CheckpointError)
    assert "begins at offset 3 now; the 2 offsets from 1 on were not processed" in str(
        refused.exception
    )
    assert (tmp_path / "out.txt").read_text() == "a\n"


def test_a_run_refuses_to_start_on_a_topic_that_was_made_again(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Else the first records of the new topic would be missing."""
    produce(broker, topic, *(f"old{number}" for number in range(10)))
    assert run(tmp_path, source(broker, topic)).wait(400)
    broker.create_again(topic, 3)
    produce(broker, topic, *(f"new{number}" for number in range(15)))

    refused = run(tmp_path, source(broker, topic))
    assert refused.wait(400)
    assert isinstance(refused.exception, CheckpointError)
    assert f"topic '{topic}' was deleted and created again" in str(refused.exception)

    skipping = run(tmp_path, source(broker, topic, on_data_loss="skip"))
    assert skipping.wait(400)
    assert skipping.exception is None
    expected = [f"old{number}" for number in range(10)] + [f"new{number}" for number in range(15)]
    assert (tmp_path / "out.txt").read_text().split() == expected


@pytest.mark.parametrize("on_data_loss", ["stop", "skip"])
def test_a_topic_made_again_with_fewer_records_ends_a_run_or_is_read_from_its_beginning(
    broker: Broker, topic: str, tmp_path: Path, eventually: Eventually, on_data_loss: str
) -> None:
    out = tmp_path / "out.txt"
    produce(broker, topic, *(f"old{number}" for number in range(10)))
    config = source(broker, topic, until_now=False, on_data_loss=on_data_loss)
    going = run(tmp_path, config)
    try:
        eventually(lambda: going.status().outputs == 10, "the first topic is read")
        broker.create_again(topic, 3)
        produce(broker, topic, "new0", "new1")
        if on_data_loss == "skip":
            eventually(lambda: going.status().outputs == 12, "the new topic is read")
    finally:
        if on_data_loss == "skip":
            going.stop()
        assert going.wait(400)
    if on_data_loss == "skip":
        assert going.exception is None
        expected = [f"old{number}" for number in range(10)] + ["new0", "new1"]
        assert out.read_text().split() == expected
    else:
        assert isinstance(going.exception, CheckpointError)
        assert "was deleted and created again" in str(going.exception)


def test_a_topic_of_a_pattern_that_is_deleted_does_not_stall_the_others(
    broker: Broker, tmp_path: Path, eventually: Eventually
) -> None:
    for name in ("stays-here", "goes-away"):
        broker.create(name)
    produce(broker, "goes-away", *(f"away{number}" for number in range(100)))
    config = source(broker, "^(stays-here|goes-away)$", until_now=False)
    going = run(tmp_path, config)
    try:
        eventually(lambda: going.status().outputs == 100, "the topic is read")
        broker.admin.delete_topic("goes-away")
        produce(broker, "stays-here", "here")
        eventually(lambda: going.status().outputs == 101, "the other topic is read")
    finally:
        going.stop()
        assert going.wait(400)

    produce(broker, "stays-here", "there")
    again = run(tmp_path, source(broker, "^(stays-here|goes-away)$"))
    assert again.wait(400)
    assert again.exception is None
    assert (tmp_path / "out.txt").read_text().split()[100:] == ["here", "there"]


def test_a_topic_that_is_not_there_is_named_at_the_start(broker: Broker, tmp_path: Path) -> None:
    made = run(tmp_path, source(broker, "no-such-topic"))
    assert made.wait(400)
    assert isinstance(made.exception, PeerError)
    assert "has no topic 'no-such-topic'" in str(made.exception)


def test_brokers_that_are_away_are_waited_for_and_reported(
    broker: Broker, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    made = run(tmp_path, source(broker, topic, until_now=False))
    try:
        eventually(lambda: made.status().state == "running", "it runs")
        broker.pause()
        thawing = threading.Timer(30.0, broker.resume)
        thawing.start()
        try:
            eventually(lambda: "Kafka at" in made.status().waiting_for, "it says so")
        finally:
            thawing.cancel()
            broker.resume()
        produce(broker, topic, "late")
        eventually(lambda: made.status().outputs == 1, "it continues")
        assert made.exception is None
    finally:
        made.stop()
        assert made.wait(400)


def test_records_with_metadata_reach_the_decoder_before_and_after_a_shuffle(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """They are not bytes: a pure decoder must not send them on undecoded."""
    produce(broker, topic, "a", "b")
    config = source(broker, topic, decoder=place, with_metadata=True)
    stream = wallaroo.source("in", config).key_by(whole).to(same)
    sink = wallaroo.FileSinkConfig(tmp_path / "out.txt", encoder=wallaroo.encoder(str.encode))
    application = wallaroo.build_application("places", stream.to_sink(sink))
    made = Run(application, RunOptions(status_address=None), InProcessHost(1))
    made.begin()
    assert made.wait(400)
    assert made.exception is None
    assert sorted((tmp_path / "out.txt").read_text().split("\n")) in (
        ["", "0:0", "0:1"],
        ["0:00:1"],
    )


def test_a_plan_describes_it_and_a_test_gives_it_values() -> None:
    config = wallaroo.KafkaSourceConfig("in", "topic", "127.0.0.1:1", text)
    application = copying(config, Path("out.txt"))
    described = json.loads(json.dumps(describe(application.plan)))
    assert described["sources"]["in"]["kind"] == "kafka"
    assert run_local(application, {"in": [b"a"]}).outputs == [b"a\n"]
    assert run_local(application, {"in": ["b"]}).outputs == [b"b\n"]


@wallaroo.decoder(on_error="dead-letter")
def whole_number(value: bytes) -> int:
    return int(value)


@wallaroo.computation("positive", on_error="dead-letter")
def positive(event: int) -> str:
    if event < 0:
        raise ValueError("negative")
    return str(event)


def test_a_dead_letter_names_the_record_by_topic_partition_offset_key_and_time(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    now = datetime.now(UTC).replace(microsecond=250_000)  # older records would be removed
    refused = []
    for value, key in ((b"1", None), (b"x", b"user 7"), (None, b"gone"), (b"-1", b"\xff")):
        producer.produce(
            topic,
            value,
            key,
            partition=1,
            timestamp=round(now.timestamp() * 1000),
            on_delivery=lambda error, _: refused.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert refused == []
    config = source(broker, topic, decoder=whole_number)
    stream = wallaroo.source("in", config).to(positive)
    application = wallaroo.build_application(
        "letters",
        stream.to_sink(wallaroo.FileSinkConfig(tmp_path / "out.txt", form="lines")),
        dead_letters=wallaroo.FileSinkConfig(tmp_path / "dead.jsonl"),
    )
    made = Run(application, RunOptions(status_address=None), InProcessHost(2))
    made.start()
    assert made.result(180)
    lines = (tmp_path / "dead.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    place = {"topic": topic, "partition": 1, "time": now.isoformat(timespec="milliseconds")}
    assert [letter["record"] for letter in found] == [
        {**place, "offset": 1, "key": "user 7"},
        {**place, "offset": 3, "key": "\\xff"},
    ]


class Ticks:
    """How many events a key had."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.state_computation(name="silence", state=Ticks)
def watch(event: str, ticks: Ticks, context: wallaroo.Context) -> str | None:
    ticks.count += 1
    context.set_timer_after("silent", wallaroo.seconds(1))
    return None


@watch.on_timer
def silent(ticks: Ticks, context: wallaroo.Context, name: str) -> str:
    return f"{context.key} was silent after {ticks.count} events\n"


def timed(broker: Broker, topic: str, out: Path) -> wallaroo.Application:
    """An application with windows, a join and timers; an event is a name and its second."""

    def events(name: str) -> wallaroo.KeyedPipeline[str, str]:
        read = wallaroo.source(
            name, wallaroo.KafkaSourceConfig(name, topic, broker.address, text, group=name)
        )
        return read.with_event_time(lambda event: float(event.split()[1])).key_by(
            lambda event: event.split()[0]
        )

    counts, late = (
        events("counted")
        .to(wallaroo.range_windows(wallaroo.seconds(10)).over(Count(), name="count in windows"))
        .with_late_events()
    )
    pairs = events("left").join(events("right"), within=wallaroo.seconds(1), name="pairs")
    return wallaroo.build_application(
        "timed",
        *(
            outputs.map(str).to_sink(wallaroo.FileSinkConfig(out / name, name=name))
            for name, outputs in {
                "counts": counts,
                "late": late,
                "pairs": pairs,
                "silence": events("watched").to(watch),
            }.items()
        ),
    )


def test_metrics_of_a_live_run_with_windows_joins_and_timers_pass_promtools_checks(
    broker: Broker, topic: str, tmp_path: Path, promtool: str, eventually: Eventually
) -> None:
    """It reads the text as Prometheus would, and lints names, units and help."""
    options = RunOptions(checkpoint=tmp_path / "state")
    live = Run(timed(broker, topic, tmp_path), options, InProcessHost(2))
    live.begin()
    try:
        times = [*range(40), 1, 2]  # the last two are late for their window
        produce(broker, topic, *(f"k{at % 3} {1_767_182_400 + at}" for at in times))
        eventually(lambda: live.status().outputs > 40, "windows, pairs and timers have outputs")
        eventually(lambda: any(each.late for each in live.status().losses), "late ones are counted")
        (address,) = [each.address for each in running() if each.application == "timed"]
        connection = http.client.HTTPConnection(*address, timeout=400)
        connection.request("GET", "/metrics", headers=authorization(address))
        metrics = connection.getresponse().read()
    finally:
        live.stop()
        assert live.wait(400)
    assert live.exception is None
    command = [promtool, "check", "metrics"]
    checked = subprocess.run(command, input=metrics, capture_output=True, timeout=400)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    lags = [
        sample.labels["source"]
        for family in text_string_to_metric_families(metrics.decode())
        for sample in family.samples
        if sample.name == "wallaroo_source_partition_lag_events"
    ]
    assert sorted(lags) == sorted(["counted", "left", "right", "watched"] * 3)
