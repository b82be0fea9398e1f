"""Every example on real Spark, fed and read over real TCP, against its expected output.

The showcases run as a user runs them, with `wallaroo run`; the others as a program does, with
`wallaroo.run`, in one Spark for all.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.receive.receiver import Receiver
from wallaroo.spark.local_cluster.hosts import free_ports

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
sys.path[:0] = [str(EXAMPLES / name) for name in ("alphabet", "market_spread")]

from alphabet_oracle import running_totals  # noqa: E402  # found on the path set above
from market_spread_data import ORDER_FRAME, QUOTE_FRAME, Market, first  # noqa: E402
from market_spread_oracle import Oracle  # noqa: E402

pytestmark = pytest.mark.java

HOST = "127.0.0.1"
START_SECONDS_MAX = 400.0
# Spark takes ten seconds to start, a minute on a machine that is busy with other things
OUTPUT_SECONDS_MAX = 400
STOP_SECONDS_MAX = 400.0
PROBE_SECONDS = 0.5


@dataclass(slots=True)
class Running:
    """An example under way: its ports by source name, and what came out so far."""

    process: subprocess.Popen[str]
    ports: dict[str, int]
    receiver: Receiver

    def send(self, source: str, content: bytes) -> None:
        """Send as one client that leaves afterwards; waits until the application listens."""
        with self.connect(source) as connection:
            connection.sendall(content)

    def connect(self, source: str) -> socket.socket:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return socket.create_connection((HOST, self.ports[source]))
            except ConnectionRefusedError:
                assert self.process.poll() is None, (
                    f"wallaroo run ended with {self.process.returncode}"
                )
                assert time.monotonic() < deadline, f"not in time: {source} listens"
                time.sleep(0.05)

    def outputs(self, count: int) -> list[bytes]:
        """Wait for so many outputs, stop the run as Ctrl-C does, and return *all* that came."""
        deadline = time.monotonic() + OUTPUT_SECONDS_MAX
        while not self.receiver.wait_for(count, 0.2):
            assert self.process.poll() in (None, 0), (
                f"wallaroo run ended with {self.process.returncode}"
            )
            assert time.monotonic() < deadline, (
                f"not in time: {self.receiver.count} of {count} outputs"
            )
        self.stop()
        return list(self.receiver.payloads)

    def stop(self) -> None:
        """SIGINT ends a run at a batch boundary, with exit code 0; one whose sources have ended is
        gone already.
        """
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        assert self.process.wait(STOP_SECONDS_MAX) == 0


@contextmanager
def running(
    folder: Path, example: str, sources: tuple[str, ...], form: str, options: tuple[str, ...]
) -> Iterator[Running]:
    ports = dict(zip(sources, free_ports(len(sources)), strict=True))
    inputs = ",".join(f"{name}@{HOST}:{port}" for name, port in ports.items())
    with Receiver(HOST, 0, form) as receiver, (folder / f"{example}.log").open("w") as log:
        command = [
            *(
                sys.executable,
                "-m",
                "wallaroo",
                "run",
                str(EXAMPLES / example / f"{example}.py"),
                "--master",
                "local[2]",
                "--log-level",
                "error",
            ),
            *(("--in", inputs) if sources else ()),
            *("--out", f"{HOST}:{receiver.address[1]}", *options),
        ]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        }
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            yield Running(process, ports, receiver)
        except BaseException:
            log.flush()
            print((folder / f"{example}.log").read_text())  # pytest shows it beside the failure
            raise
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(STOP_SECONDS_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def outputs_in_session(
    session: Any, example: str, source: str, content: bytes, count: int, *options: str
) -> list[bytes]:
    """Run an example, send ``content`` to its source if it has one, wait for so many lines; return
    *all* that came.
    """
    inputs = ("--in", f"{source}@{HOST}:0") if content else ()
    with Receiver(HOST, 0, "lines") as receiver:
        args = [*inputs, "--out", f"{HOST}:{receiver.address[1]}", *options]
        application = load_application(str(EXAMPLES / example / f"{example}.py"), args)
        handle = wallaroo.run(application, session=session, module_paths=(str(EXAMPLES / example),))
        try:
            if content:
                with socket.create_connection(handle.addresses[source]) as connection:
                    connection.sendall(content)
            receiver.wait_for(count, OUTPUT_SECONDS_MAX)
        finally:
            handle.stop()
            assert handle.wait(STOP_SECONDS_MAX)
        assert handle.exception is None
        return list(receiver.payloads)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def per_key(lines: list[bytes]) -> dict[str, list[int]]:
    """``key => number`` lines as the numbers of every key, in order of arrival."""
    numbers: dict[str, list[int]] = {}
    for line in lines:
        key, _, number = line.decode().rpartition(" => ")
        numbers.setdefault(key, []).append(int(number))
    return numbers


def test_word_count_answers_every_word_of_the_bill_of_rights_with_its_running_count(
    tmp_path: Path,
) -> None:
    expected = json.loads((EXAMPLES / "word_count/bill_of_rights_word_counts.json").read_text())
    lines = (EXAMPLES / "word_count/bill_of_rights.txt").read_bytes().split(b"\n")
    with running(tmp_path, "word_count", ("Split and Count",), "lines", ()) as run:
        run.send("Split and Count", b"".join(framed(line) for line in lines if line))
        outputs = run.outputs(482)

    assert len(outputs) == 482
    assert per_key(outputs) == {word: list(range(1, count + 1)) for word, count in expected.items()}


def test_alphabet_keeps_the_running_total_of_every_letter(spark_session: Any) -> None:
    messages = (EXAMPLES / "alphabet/alphabet_votes.msg").read_bytes()
    totals = per_key(outputs_in_session(spark_session, "alphabet", "Votes", messages, 10_000))
    assert totals == running_totals(messages)
    assert {letter: each[-1] for letter, each in totals.items()} == json.loads(
        (EXAMPLES / "alphabet/alphabet_expected.json").read_text()
    )


def test_celsius_converts_every_temperature(spark_session: Any) -> None:
    messages = (EXAMPLES / "celsius/celsius.msg").read_bytes()
    outputs = outputs_in_session(spark_session, "celsius", "Celsius", messages, 1000)
    assert sorted(outputs) == sorted(
        (EXAMPLES / "celsius/celsius_expected.txt").read_bytes().splitlines()
    )


def test_stateless_alerts_are_the_listed_ones(spark_session: Any) -> None:
    expected = (EXAMPLES / "alerts_stateless/first_alerts.txt").read_bytes().splitlines()
    outputs = outputs_in_session(
        spark_session, "alerts_stateless", "", b"", len(expected), "--transactions", "25"
    )
    assert sorted(outputs) == sorted(expected)


def test_stateful_alerts_are_the_listed_ones_in_order_per_user(spark_session: Any) -> None:
    expected = (EXAMPLES / "alerts_stateful/first_alerts.txt").read_bytes().splitlines()
    outputs = outputs_in_session(
        spark_session, "alerts_stateful", "", b"", len(expected), "--transactions", "31"
    )

    def by_user(lines: list[bytes]) -> list[bytes]:
        # stable: a user's own order stays
        return sorted(lines, key=lambda line: line.rpartition(b": ")[0])

    assert by_user(outputs) == by_user(expected)


def test_windowed_alerts_are_the_listed_ones_in_order_per_user(spark_session: Any) -> None:
    expected = (EXAMPLES / "alerts_windowed/alerts.txt").read_bytes().splitlines()
    outputs = outputs_in_session(
        spark_session, "alerts_windowed", "", b"", len(expected), "--transactions", "400"
    )

    def by_user(lines: list[bytes]) -> list[bytes]:
        # stable: a user's own order stays
        return sorted(lines, key=lambda line: line.rpartition(b": ")[0].split(b" for ")[1])

    assert by_user(outputs) == by_user(expected)


def test_market_spread_rejects_exactly_the_orders_of_the_oracle(tmp_path: Path) -> None:
    opening = (EXAMPLES / "market_spread/350_symbols_initial_nbbo.msg").read_bytes()
    market = Market.of(opening, reject_share=0.2, seed=11)
    quotes = b"".join(first(market.quote_blocks(), QUOTE_FRAME.size, 20 * 350))
    orders = b"".join(first(market.order_blocks(), ORDER_FRAME.size, 4000))
    oracle = Oracle()
    oracle.feed_quotes(opening + market.fence() + quotes)

    with running(tmp_path, "market_spread", ("Orders", "Market Data"), "frames", ()) as run:
        run.send("Market Data", opening + market.fence())
        probes = probe_until_open(run, market)
        oracle.feed_orders(probes + orders)
        with run.connect("Market Data") as quoting, run.connect("Orders") as ordering:
            for at in range(10):  # turn and turn about, so that the streams meet
                quoting.sendall(
                    quotes[at * 700 * QUOTE_FRAME.size : (at + 1) * 700 * QUOTE_FRAME.size]
                )
                ordering.sendall(
                    orders[at * 400 * ORDER_FRAME.size : (at + 1) * 400 * ORDER_FRAME.size]
                )
        outputs = run.outputs(oracle.expected)

    judgement = oracle.judge(outputs)
    assert judgement.is_right, str(judgement)
    assert judgement.correct > 700


def probe_until_open(run: Running, market: Market) -> bytes:
    """Send orders that are always rejected until one meets the last of the opening quotes; all that
    were sent.
    """
    prices, probes, deadline = market.fence()[-16:], b"", time.monotonic() + OUTPUT_SECONDS_MAX
    with run.connect("Orders") as connection:
        number = 0
        while not any(payload[31:47] == prices for payload in run.receiver.payloads):
            assert run.process.poll() is None, f"wallaroo run ended with {run.process.returncode}"
            assert time.monotonic() < deadline, "not in time: an answer to the opening quotes"
            probes += market.probe(number)
            connection.sendall(market.probe(number))
            number += 1
            run.receiver.wait_for(number, PROBE_SECONDS)
    return probes


def test_classic_word_count_runs_on_spark(spark_session: Any) -> None:
    lines = (EXAMPLES / "word_count/bill_of_rights.txt").read_bytes().split(b"\n")
    content = b"".join(framed(line) for line in lines if line)
    expected = json.loads((EXAMPLES / "word_count/bill_of_rights_word_counts.json").read_text())
    folder = EXAMPLES / "classic_word_count"
    with Receiver(HOST, 0, "lines") as receiver:
        args = ["--in", f"{HOST}:0", "--out", f"{HOST}:{receiver.address[1]}"]
        application = load_application(str(folder / "classic_word_count.py"), args)
        handle = wallaroo.run(application, session=spark_session, module_paths=(str(folder),))
        try:
            with socket.create_connection(handle.addresses["Split and Count"]) as connection:
                connection.sendall(content)
            receiver.wait_for(482, OUTPUT_SECONDS_MAX)
        finally:
            handle.stop()
            assert handle.wait(STOP_SECONDS_MAX)
    counts = per_key(list(receiver.payloads))
    assert {word: numbers[-1] for word, numbers in counts.items()} == expected


def test_celsius_connectors_feed_is_converted_once(spark_session: Any) -> None:
    folder = EXAMPLES / "celsius_connectors"
    feed = [sys.executable, str(folder / "feed.py")]
    with Receiver(HOST, 0, "lines") as receiver:
        args = ["--in", f"{HOST}:0", "--out", f"{HOST}:{receiver.address[1]}"]
        application = load_application(str(folder / "celsius_connectors.py"), args)
        handle = wallaroo.run(application, session=spark_session, module_paths=(str(folder),))
        try:
            port = handle.addresses["celsius_feed"][1]
            for _ in range(2):
                program = [*feed, f"{HOST}:{port}", str(EXAMPLES / "celsius/celsius.msg")]
                environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
                subprocess.run(program, env=environment, check=True, timeout=400)
            receiver.wait_for(1000, OUTPUT_SECONDS_MAX)
        finally:
            handle.stop()
            assert handle.wait(STOP_SECONDS_MAX)
    expected = (EXAMPLES / "celsius/celsius_expected.txt").read_bytes().splitlines()
    assert list(receiver.payloads) == expected
