"""Figures of the pages are those of the code: constants, and what is listed by them."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from wallaroo.connectors import CONNECTORS
from wallaroo.sinks.queued.system import ENDLESS_S, ExternalSystem

ROOT = Path(__file__).parents[2]
# a page, a constant, and the sentence that has it: {} is the constant, as a page writes numbers
SENTENCES = [
    ("connectors/files.md", "connectors.files.log:EVENT_BYTES", "estimates ({} bytes each)"),
    ("connectors/http.md", "connectors.http.server:REQUESTS_MAX", "{} requests are being served"),
    ("connectors/http.md", "connectors.http.server:STORED_S_MAX", "not on disk within {} s"),
    ("connectors/kafka.md", "connectors.kafka.brokers:PATIENCE_S", "a checkpoint after {}"),
    ("connectors/kafka.md", "connectors.kafka.log:FIRST_START_S", "an error after {} seconds"),
    ("connectors/mqtt.md", "connectors.mqtt.committer:SLICE", "up to {} messages wait"),
    ("connectors/nats.md", "connectors.nats.committer:SLICE", "up to {} messages wait"),
    ("connectors/postgres.md", "connectors.sql.postgres.changes:CHANGE_BYTES", "({} bytes each)"),
    ("connectors/rabbitmq.md", "connectors.rabbitmq.committer:SLICE", "up to {} wait"),
    ("connectors/redis.md", "connectors.redis.committer:OUTPUTS_MAX", "up to {} outputs"),
    ("connectors/spark.md", "connectors.spark.staging:BATCH_ROWS_MAX", "up to {} rows"),
    ("connectors/tcp.md", "connectors.tcp.egress.ending:STALLED_S", "exits after {} s"),
    ("connectors/tcp.md", "connectors.tcp.egress.ending:QUIET_S", "after {} s of silence"),
    ("connectors/tcp.md", "ingress.config:HANDSHAKE_S", "within {} seconds"),
    ("connectors/udp.md", "connectors.udp.source:REPORTED_S", "the number for {} s"),
    ("connectors/websocket.md", "connectors.websocket.committer:SLICE", "up to {} outputs"),
    ("connectors/websocket.md", "connectors.websocket.reader:RETRY_S_MAX", "from 1 s to {} s"),
    ("cli.md", "instrumentation.tuning:HUNG_S", "no sign of life for {} s"),
    ("cli.md", "options:RETAINED_FREQUENT", "the resident host keeps at least {}"),
    ("exactly-once.md", "options:RETAINED_FREQUENT", "resident host at least {}"),
    ("limits.md", "state.log.layout:VERSION", "formats 5 to {} can be continued"),
    ("operations.md", "runtime.lifecycle.sources:TAKE_OVER_S", "waits {} s for their ports"),
    ("scaling.md", "options:MICRO_BATCH_LEAST_MS", "a `--latency` below {}"),
    ("scaling.md", "options:RETAINED_FREQUENT", "at least {}, which"),
    ("scaling.md", "spark.cluster.excluded_hosts:PROBE_AGAIN_S", "probed again every {} s"),
    ("sources.md", "sources.feeds.inbox:AGAIN_S", "exponential backoff from {} to"),
    ("sources.md", "sources.feeds.inbox:AGAIN_S_MAX", "to {} s"),
    ("sources.md", "sources.replayable:ReplayableSource.look_s", "`look_s` ({} s)"),
    ("state.md", "checkpoints.maintenance.scrub:INTERVAL_S", "every {} seconds"),
    ("state.md", "checkpoints.tables.state:SAMPLE_ROWS", "the first {} rows"),
    ("state.md", "checkpoints.inspection.values:DEPTH_MAX", "more than {} levels"),
    ("tuning.md", "options:LATENCY_MS", "| {} ms ("),
    ("tuning.md", "options:STORE_LATENCY_MS", "({} ms with an object store)"),
]


@pytest.mark.parametrize(("page", "constant", "sentence"), SENTENCES)
def test_a_sentence_has_the_constant_of_the_code(page: str, constant: str, sentence: str) -> None:
    module, _, names = constant.partition(":")
    value = importlib.import_module(f"wallaroo.{module}")
    for name in names.split("."):
        value = getattr(value, name)

    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert sentence.format(f"{value:,g}" if value < 1_000 else f"{value:,}") in text


def test_the_page_of_sinks_names_each_system_whose_calls_are_not_ended() -> None:
    table = (ROOT / "docs" / "sinks.md").read_text().partition("| what can hang |")[2]
    names = {"files": "rolling files", "function": "function", "udp": "UDP", "lake.delta": "Delta"}
    names["lake.iceberg"] = "Iceberg"
    endless = set()
    for system in CONNECTORS:
        folder = ROOT / "src/wallaroo/connectors" / system.replace(".", "/")
        of_family = folder.parent.glob("*.py") if "." in system else ()
        for path in (*folder.rglob("*.py"), *of_family):
            if "stalled_s = ENDLESS_S" in path.read_text():
                endless.add(system)

    assert ExternalSystem.stalled_s < ENDLESS_S
    assert endless == set(names)
    assert [name for name in names.values() if name not in table.partition("\n\n")[0]] == []


def test_the_page_of_operations_has_the_critical_alerts() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    critical = {
        rule["alert"]
        for group in rules
        for rule in group["rules"]
        if rule["labels"]["severity"] == "critical"
    }
    watch = (ROOT / "docs" / "operations.md").read_text().partition("\n## Watch\n")[2]

    assert set(re.findall(r"`(Wallaroo\w+)`", watch.partition("\n## ")[0])) == critical


def test_the_page_of_connectors_names_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"all", "dev", "bench"}
    page = (ROOT / "docs" / "connectors.md").read_text()

    assert [extra for extra in extras if not re.search(rf"`{extra}`|\[{extra}\]", page)] == []
