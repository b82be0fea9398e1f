"""Four whole applications without Spark: files, HTTP and Kafka are real.

What each computes is compared with an independent computation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Producer

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, committed_records
from wallaroo.spark.local_cluster.hosts import free_ports

__all__ = ["broker"]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
WAIT_S = 400.0
Eventually = Callable[..., None]


def command(example: str, *options: str) -> list[str]:
    file = EXAMPLES / example / f"{example}.py"
    return [sys.executable, "-m", "wallaroo.cli.in_process", str(file), "--no-live", *options]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def run_to_its_end(example: str, *options: str) -> str:
    done = subprocess.run(
        command(example, *options),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@contextmanager
def running(log: Path, example: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run until the caller is done, then stop as SIGTERM does."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(example, *options), env=ENVIRONMENT, stdout=out, stderr=out
        )
    try:
        yield process
        process.terminate()
        assert process.wait(WAIT_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_orders_have_the_prices_of_pandas_in_parquet(tmp_path: Path) -> None:
    orders, quotes = EXAMPLES / "asof_orders/orders.csv", EXAMPLES / "asof_orders/quotes.csv"
    expected = pd.merge_asof(pd.read_csv(orders), pd.read_csv(quotes), on="at", by="symbol")

    run_to_its_end(
        "asof_orders",
        *("--orders", str(orders), "--quotes", str(quotes), "--out", str(tmp_path / "priced")),
    )

    rows = pd.read_parquet(tmp_path / "priced").sort_values("id", ignore_index=True)
    pd.testing.assert_frame_equal(rows[expected.columns], expected, check_dtype=False)


def test_every_payment_of_a_file_is_scored(tmp_path: Path) -> None:
    payments = EXAMPLES / "payment_scores/payments.jsonl"

    run_to_its_end(
        "payment_scores", "--payments", str(payments), "--out", str(tmp_path / "scores.jsonl")
    )

    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    scores = {row["id"]: row["score"] for row in map(json.loads, lines)}
    assert sorted(scores) == list(range(40))
    assert all(0 < score < 1 for score in scores.values())


class Alerts(BaseHTTPRequestHandler):
    """A server that keeps what is posted to it."""

    posted: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def server_of_alerts(port: int) -> Iterator[list[dict[str, Any]]]:
    posted: list[dict[str, Any]] = []
    server = HTTPServer(("127.0.0.1", port), type("Handler", (Alerts,), {"posted": posted}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield posted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_alerts_wait_for_their_server_and_are_posted_once(
    tmp_path: Path, eventually: Eventually
) -> None:
    port, alerts = free_ports(2)
    body = (EXAMPLES / "card_alerts/payments.jsonl").read_bytes()
    options = ("--port", str(port), "--alerts", f"http://127.0.0.1:{alerts}/alerts")
    log = tmp_path / "log"

    def is_posted() -> bool:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/payments", body)
        try:
            return urllib.request.urlopen(request, timeout=30).status == 204
        except OSError:
            return False

    with running(log, "card_alerts", "--checkpoint", str(tmp_path / "cards"), *options):
        eventually(is_posted, "the payments are stored")
        eventually(lambda: "waiting for alerts" in log.read_text(), "the sink waits")
        with server_of_alerts(alerts) as posted:
            eventually(lambda: len(posted) >= 2, "both alerts are posted")

    assert [(alert["card"], alert["text"]) for alert in posted] == [
        ("c2", "blocked after 3 declines"),
        ("c1", "not captured within 30 seconds"),
    ]


def sessions_of(clicks: list[dict[str, Any]]) -> tuple[list[tuple[str, int]], int]:
    """Return the sessions (user, clicks) of one partition, and how many of its clicks are late."""
    newest = float("-inf")
    by_user = defaultdict(list)
    late = 0
    for click in clicks:
        if click["at"] < newest - 10:
            late += 1
        else:
            by_user[click["user"]].append(click["at"])
        newest = max(newest, click["at"])
    sessions = []
    for user, times in by_user.items():
        times.sort()
        first = 0
        for number in range(1, len(times) + 1):
            if number == len(times) or times[number] - times[number - 1] >= 30:
                sessions.append((user, number - first))
                first = number
    return sessions, late


@pytest.mark.kafka
@pytest.mark.java
def test_each_click_is_in_a_session_late_or_bad(broker: Broker, tmp_path: Path) -> None:
    for topic in ("clicks", "sessions", "late-clicks", "bad-clicks"):
        broker.create(topic, 1)
    clicks = [
        {
            "user": f"u{number % 23}",
            "page": "/",
            "at": 1_767_182_400 + number * 2 - (number % 13) - (60 if number % 29 == 0 else 0),
        }
        for number in range(2_000)
    ]
    producer = Producer({"bootstrap.servers": broker.address})
    for number, click in enumerate(clicks):
        if number % 100 == 0:
            producer.produce("clicks", b"no click")
        producer.produce("clicks", json.dumps(click))
    assert producer.flush(30) == 0
    # a click that ends all sessions before it
    producer.produce("clicks", json.dumps({"user": "last", "page": "/", "at": 1_767_200_000}))
    assert producer.flush(30) == 0

    run_to_its_end(
        "kafka_sessions",
        *("--brokers", broker.address, "--until-now", "--checkpoint", str(tmp_path / "state")),
    )

    def values(topic: str) -> list[Any]:
        return [json.loads(record.value()) for record in committed_records(broker, topic)]  # type: ignore[attr-defined]

    expected, late = sessions_of(clicks)
    found = [
        (row["user"], len(row["pages"])) for row in values("sessions") if row["user"] != "last"
    ]
    assert sorted(found) == sorted(expected)
    assert len(values("late-clicks")) == late > 20
    assert len(values("bad-clicks")) == 20
