"""Files or a table first, then Kafka, with a real broker: each record once, through SIGKILL."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

import wallaroo
from tests.connectors.kafka.broker import Broker
from tests.unit.monitoring.dashboard.pages import assert_nothing_is_cut, serious_problems
from tests.unit.sources.own import copying
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.cli.application.targets import target_of
from wallaroo.errors import CheckpointError, PeerError
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sources import FilesSourceConfig
from wallaroo.sources.chain import chain
from wallaroo.spark.local_cluster.hosts import free_ports

pytestmark = pytest.mark.kafka
Eventually = Callable[..., None]
ROOT = Path(__file__).resolve().parents[3]
BORDER_MS = (int(time.time()) - 3600) * 1000  # older ones would be removed by retention
WAIT_S = 400.0


@wallaroo.decoder(pure=True)
def from_json(value: bytes) -> str:
    return str(json.loads(value)["name"])


@wallaroo.decoder(pure=True)
def from_row(row: dict[str, Any]) -> str:
    return str(row["name"])


def table(folder: Path, names: list[str]) -> FilesSourceConfig[str]:
    (folder / "history").mkdir(exist_ok=True)
    pq.write_table(pa.table({"name": names}), folder / "history" / "a.parquet")
    return FilesSourceConfig("in", str(folder / "history" / "*.parquet"), from_row)


def lines(folder: Path) -> wallaroo.FileSourceConfig[str]:
    (folder / "a.txt").write_text("".join(json.dumps({"name": name}) + "\n" for name in OLD))
    return wallaroo.FileSourceConfig("in", str(folder / "a.txt"), from_json)


def kafka(broker: Broker, topic: str, **options: Any) -> wallaroo.KafkaSourceConfig[str]:
    fields = {"group": "", "until_now": True, **options}
    return wallaroo.KafkaSourceConfig("in", topic, broker.address, from_json, **fields)


def produce(broker: Broker, topic: str, names: list[str], ms: int, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for number, name in enumerate(names):
        value = json.dumps({"name": name})
        producer.produce(topic, value, partition=number % partitions, timestamp=ms + number)
    assert producer.flush(30) == 0


def run(folder: Path, config: Any, **options: Any) -> Run:
    chosen = RunOptions(**{"checkpoint": folder / "state", "status_address": None, **options})
    made = Run(copying(config, folder / "out.txt"), chosen, InProcessHost(2))
    made.begin()
    return made


def copied(folder: Path) -> list[str]:
    return (folder / "out.txt").read_text().split()


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


OLD, EARLIER, LATER = names("old", 500), names("earlier", 30), names("later", 60)
AT = datetime.fromtimestamp(BORDER_MS / 1e3, UTC)


@pytest.mark.parametrize("at", [AT, {0: 10, 1: 10, 2: 10}], ids=["time", "offsets"])
def test_a_table_is_followed_by_what_kafka_has_from_the_boundary_on(
    broker: Broker, topic: str, tmp_path: Path, at: Any
) -> None:
    """Rows and records have decoders of their own; what is older than the boundary is left out."""
    produce(broker, topic, EARLIER, BORDER_MS - 1_000)
    produce(broker, topic, LATER, BORDER_MS)
    config = wallaroo.chain(table(tmp_path, OLD), kafka(broker, topic), at=at)
    made = run(tmp_path, config)
    assert made.wait(WAIT_S)
    assert made.exception is None
    assert copied(tmp_path)[: len(OLD)] == OLD
    assert sorted(copied(tmp_path)) == sorted(OLD + LATER)


def test_the_boundary_stays_if_a_run_ends_before_it(
    broker: Broker, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """Records that come meanwhile are read, also those with times from before the boundary."""
    produce(broker, topic, LATER, BORDER_MS)
    first = lines(tmp_path)
    config = wallaroo.chain(first, kafka(broker, topic, until_now=False), at=AT)
    held = run(tmp_path, config, rate_limit=20.0)
    eventually(lambda: held.status().events_done > 0, "the first part is read")
    assert held.status().sources[0].backfill is not None
    held.stop()
    assert held.wait(WAIT_S)

    produce(broker, topic, EARLIER, BORDER_MS - 1_000)
    config = wallaroo.chain(first, kafka(broker, topic), at=AT)
    made = run(tmp_path, config)
    assert made.wait(WAIT_S)
    assert made.exception is None
    assert sorted(copied(tmp_path)) == sorted(OLD + LATER + EARLIER)


def test_dashboard_and_status_show_how_far_the_first_part_is_and_when_it_ends(
    broker: Broker,
    topic: str,
    tmp_path: Path,
    chromium: Any,
    axe: str,
    save_screen: Callable[..., None],
    wallaroo: Callable[..., tuple[int, str, str]],
    eventually: Eventually,
) -> None:
    """From the first events on until the border, wide and on a phone.

    The first part lasts for minutes until all was seen, and goes on without a limit then.
    """
    produce(broker, topic, LATER, BORDER_MS)
    (port,) = free_ports(1)
    status = f"127.0.0.1:{port}"
    first = lines(tmp_path)
    config = chain(first, kafka(broker, topic, until_now=False), at=AT)
    made = run(tmp_path, config, rate_limit=2.0, status_address=("127.0.0.1", port))
    eventually(lambda: made.status().events_done > 0, "the first part is read")
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, reduced_motion="reduce")
    try:
        context.set_default_timeout(WAIT_S * 1000)
        page = context.new_page()
        page.goto(target_of(status).link)
        badge = page.locator(".badge", has_text="backfill")
        shown = re.compile(r"^backfill: \d+ %, (\d+ min )?\d+ s left$")
        badge.filter(has_text=shown).wait_for()
        save_screen(page, "backfill", is_whole=True)
        region = badge.locator("xpath=ancestor::div[contains(@class, 'scroll')]")
        assert region.evaluate("region => region.scrollWidth <= region.clientWidth")
        assert serious_problems(page, axe) == []
        assert_nothing_is_cut(page)
        page.set_viewport_size({"width": 390, "height": 844})
        save_screen(page, "backfill-phone", is_whole=True)
        assert_nothing_is_cut(page)
        code, said, _ = wallaroo("status", status)
        assert code == 0
        assert re.search(r"backfill \d+ %, (\d+ min )?[\d.]+ s left", said)
        made.stop()
        assert made.wait(WAIT_S)
        config = chain(first, kafka(broker, topic, until_now=False), at=AT)
        made = run(tmp_path, config, status_address=("127.0.0.1", port))
        eventually(lambda: border_of(tmp_path), "the border is crossed")
        page = context.new_page()
        page.goto(target_of(status).link)
        page.get_by_role("columnheader", name="received").wait_for()
        page.locator(".badge", has_text="backfill").wait_for(state="detached")
        assert "backfill" not in wallaroo("status", status)[1]
    finally:
        context.close()
        made.stop()
        assert made.wait(WAIT_S)
    assert sorted(copied(tmp_path)) == sorted(OLD + LATER)


@pytest.mark.parametrize("on_data_loss", ["stop", "skip"])
def test_a_boundary_that_retention_passed_is_a_loss(
    broker: Broker, topic: str, tmp_path: Path, eventually: Eventually, on_data_loss: str
) -> None:
    produce(broker, topic, LATER, BORDER_MS, partitions=1)
    first = lines(tmp_path)
    config = wallaroo.chain(first, kafka(broker, topic, until_now=False), at={0: 10, 1: 0, 2: 0})
    held = run(tmp_path, config, rate_limit=20.0)
    eventually(lambda: held.status().last_batch >= 0, "a batch is committed")
    held.stop()
    assert held.wait(WAIT_S)
    broker.admin.delete_records(topic, 0, 25)

    second = kafka(broker, topic, on_data_loss=on_data_loss)
    made = run(tmp_path, wallaroo.chain(first, second, at={0: 10, 1: 0, 2: 0}))
    assert made.wait(WAIT_S)
    if on_data_loss == "stop":
        assert isinstance(made.exception, CheckpointError)
        assert "the 15 offsets from 10 on were not processed and are gone" in str(made.exception)
    else:
        assert made.exception is None
        assert sorted(copied(tmp_path)) == sorted(OLD + LATER[25:])


def test_a_time_before_all_that_a_trimmed_topic_holds_may_be_a_loss(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    produce(broker, topic, LATER, BORDER_MS, partitions=1)
    broker.admin.delete_records(topic, 0, 25)
    before = AT - timedelta(hours=1)
    made = run(tmp_path, wallaroo.chain(table(tmp_path, OLD), kafka(broker, topic), at=before))
    assert made.wait(WAIT_S)
    assert isinstance(made.exception, CheckpointError)
    assert f"begins at offset 25 now, and holds no record from before {before.isoformat()}" in str(
        made.exception
    )

    second = kafka(broker, topic, on_data_loss="skip")
    made = run(tmp_path, wallaroo.chain(table(tmp_path, OLD), second, at=before))
    assert made.wait(WAIT_S)
    assert made.exception is None
    assert sorted(copied(tmp_path)) == sorted(OLD + LATER[25:])


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({0: 1, 1: 1}, "names no offset of partition 2"),
        ({7: 0}, "names partition 7 of Kafka topic '.*', which is not there. .* The ends are {0: "),
        ({0: 0, 1: 0, 2: 0, 7: 0}, "names partition 7 of Kafka topic '.*', which is not there"),
        ({0: 99, 1: 0, 2: 0}, "is beyond the end of partition 0"),
    ],
)
def test_offsets_that_do_not_fit_the_topic_are_refused(
    broker: Broker, topic: str, tmp_path: Path, at: dict[int, int], message: str
) -> None:
    produce(broker, topic, LATER, BORDER_MS)
    made = run(tmp_path, wallaroo.chain(table(tmp_path, OLD), kafka(broker, topic), at=at))
    assert made.wait(WAIT_S)
    assert isinstance(made.exception, PeerError)
    with pytest.raises(PeerError, match=message):
        raise made.exception


@wallaroo.decoder(pure=True)
def time_in_row(row: dict[str, Any]) -> int:
    return int(row["name"])


@wallaroo.decoder(pure=True)
def time_in_json(value: bytes) -> int:
    return int(json.loads(value)["name"])


@wallaroo.encoder
def as_text(count: int) -> str:
    return str(count)


def counts_of_ten_seconds(source: Any, out: Path, idle_after: int | None) -> wallaroo.Application:
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(wallaroo.aggregations.Count())
    timed = wallaroo.source("in", source).with_event_time(
        lambda second: wallaroo.seconds(second), idle_after=idle_after
    )
    sink = wallaroo.FileSinkConfig(out, as_text, form="lines")
    return wallaroo.build_application("windows", timed.collect().to(windows).to_sink(sink))


@pytest.mark.parametrize("idle_after", [wallaroo.seconds(1), None], ids=["idle", "waited-for"])
def test_partitions_that_never_have_a_record_are_idle_after_the_border(
    broker: Broker, topic: str, tmp_path: Path, eventually: Eventually, idle_after: int | None
) -> None:
    """Of three partitions one has records.  What waits for their watermark is counted only if the
    other two are idle; until the border nothing of this matters."""
    border = BORDER_MS // 1000
    old = [str(border - 60 + second) for second in range(30)]
    first = replace(table(tmp_path, old), decoder=time_in_row)
    second = replace(kafka(broker, topic, until_now=False), decoder=time_in_json)
    config = wallaroo.chain(first, second, at=AT)
    options = RunOptions(checkpoint=tmp_path / "state", status_address=None, batch_time_s=0.05)
    out = tmp_path / "out.txt"
    made = Run(counts_of_ten_seconds(config, out, idle_after), options, InProcessHost(2))
    made.begin()
    eventually(lambda: made.status().batches and border_of(tmp_path), "the border")
    produce(broker, topic, [str(border + second) for second in range(21)], BORDER_MS, partitions=1)
    newest = border - 31  # of the first part, at which partitions of the second begin
    counted = 51 if idle_after else newest // 10 * 10 - (border - 60)
    eventually(lambda: out.exists() and sum(map(int, copied(tmp_path))) == counted, "windows")
    if idle_after is None:
        eventually(lambda: made.status().sources[0].backlog_events == 0, "all records are read")
        time.sleep(1.5)  # longer than the other case's idle_after
        assert sum(map(int, copied(tmp_path))) == counted
    made.stop()
    assert made.wait(400)


APPLICATION = """
import json
import sys
import time
import wallaroo
from wallaroo.sources import FilesSourceConfig

@wallaroo.decoder(pure=True)
def from_json(value):
    return json.loads(value)["name"]

@wallaroo.decoder(pure=True)
def from_row(row):
    return row["name"]

@wallaroo.encoder
def encode(name):
    return name

def application_setup(args):
    folder, brokers, topic = args[-3:]
    first = FilesSourceConfig("in", folder + "/history/*.parquet", from_row)
    second = wallaroo.KafkaSourceConfig("in", topic, brokers, from_json, until_now=True, group="")
    source = wallaroo.chain(first, second, at={0: 10, 1: 10, 2: 10})
    out = wallaroo.FileSinkConfig(folder + "/out.txt", encode, form="lines")
    return wallaroo.build_application("chained", wallaroo.source("in", source).to_sink(out))
"""
IN_PROCESS = """
import sys
from pathlib import Path
from chained import application_setup
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

options = RunOptions(checkpoint=Path("state"), status_address=None)
run = Run(application_setup(sys.argv), options, InProcessHost(2))
run.begin()
run.result(200)
"""


class Command:
    """The application as processes, one after the other, on one checkpoint."""

    def __init__(self, folder: Path, broker: Broker, topic: str):
        self._folder = folder
        self._arguments = [str(folder), broker.address, topic]
        (folder / "chained.py").write_text(APPLICATION)
        (folder / "in_process.py").write_text(IN_PROCESS)

    def run(self, host: str, fault: str) -> int:
        """Run to the end, or to a SIGKILL at a fault point; return the exit code."""
        command = ["in_process.py"]
        if host != "in-process":
            command = ["-m", "wallaroo", "run", "--no-live", "--host", host, "--master", "local[2]"]
            command += ["--checkpoint", str(self._folder / "state"), "chained.py"]
        with (self._folder / "log").open("ab") as log:
            return subprocess.run(
                [sys.executable, *command, *self._arguments],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "WALLAROO_FAULT": fault},
                timeout=WAIT_S,
                check=False,
            ).returncode


def border_of(folder: Path) -> bool:
    """Return whether the last commit is beyond the border."""
    commits = CheckpointReader(folder / "state").commits()
    return bool(commits) and commits[-1].offsets["in"][0]["part"] == 1


KILLS = ["commit.before:1", "commit.after:1", "commit.sinks:1"]


@pytest.mark.parametrize(
    "hosts",
    [
        ["in-process"],
        pytest.param(["resident", "micro-batch"], marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)
def test_each_record_comes_once_though_every_run_is_killed(
    broker: Broker, topic: str, tmp_path: Path, hosts: list[str]
) -> None:
    """Each run dies at its first commit, before, at and after it: so one does so at the border."""
    produce(broker, topic, EARLIER, BORDER_MS - 1_000)
    produce(broker, topic, LATER, BORDER_MS)
    table(tmp_path, OLD)
    command = Command(tmp_path, broker, topic)
    killed_beyond: list[bool] = []
    for host, kill in zip(itertools.cycle(hosts), itertools.cycle(KILLS), strict=False):
        if (code := command.run(host, kill)) != -signal.SIGKILL:
            break
        killed_beyond.append(border_of(tmp_path))
    assert code == 0, (tmp_path / "log").read_text()
    assert set(killed_beyond) == {False, True}
    assert Counter(copied(tmp_path)) == Counter(OLD + LATER)
