"""Outages of sources: what the status and the log say, and the processes of a run."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys

import pytest

from wallaroo.connectors.kafka import log
from wallaroo.connectors.kafka.brokers import TopicsQuery
from wallaroo.connectors.kafka.log import KafkaLog
from wallaroo.errors import PeerError
from wallaroo.runtime.lifecycle import observer
from wallaroo.runtime.lifecycle.observer import Outage, Outages
from wallaroo.runtime.lifecycle.watch import SAMPLE_S, ProcessUsage
from wallaroo.sources.log import Head, Position

BEGAN = 1_700_000_000.0  # 22:13:20 UTC
AWAY = "source 'clicks': Kafka at k:9092 is unavailable (Broker transport failure)"


class Clock:
    def __init__(self, now: float):
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_an_outage_is_named_with_its_beginning_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(BEGAN)
    outage = Outage("clicks", clock)
    caplog.set_level(logging.INFO, "wallaroo")

    assert outage.note("") == ""
    assert outage.note(f"{AWAY}.") == f"{AWAY}, since 22:13:20 UTC"
    assert caplog.messages == []
    for clock.now in (BEGAN + 5, BEGAN + 90):
        assert outage.note(AWAY) == f"{AWAY}, since 22:13:20 UTC"
    clock.now = BEGAN + 150
    assert outage.note("") == ""

    assert caplog.messages == [
        f"{AWAY}, since 22:13:20 UTC",
        "source 'clicks' is available again after 150 s",
    ]


def test_an_outage_that_does_not_name_its_source_gets_the_name() -> None:
    words = Outage("items", Clock(BEGAN)).note("Redis at redis://h: Connection refused.")
    assert words == "source 'items': Redis at redis://h: Connection refused, since 22:13:20 UTC"


def test_a_moment_without_an_answer_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("clicks", Clock(BEGAN))
    outage.note(AWAY)
    outage.note("")
    assert caplog.messages == []


def test_each_ingress_has_outages_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(BEGAN)
    outages = Outages("In", clock)
    for seconds, edge1, edge2 in (
        (0, "ingress 'edge1' is disconnected", ""),
        (6, "ingress 'edge1' is disconnected", ""),
        (8, "", "ingress 'edge2' is disconnected"),
        (14, "ingress 'edge1' is disconnected", "ingress 'edge2' is disconnected"),
        (19, "ingress 'edge1' is disconnected", "ingress 'edge2' is disconnected"),
        (20, "", "ingress 'edge2' is disconnected"),
        (31, "", ""),
    ):
        clock.now = BEGAN + seconds
        words = outages.note(Head(Position(0, 0), ingresses={"edge1": edge1, "edge2": edge2}))
        assert words.count("is disconnected") == bool(edge1) + bool(edge2)

    assert caplog.messages == [
        "source 'In': ingress 'edge1' is disconnected, since 22:13:20 UTC",
        "source 'In': ingress 'edge1' is available again after 8 s",
        "source 'In': ingress 'edge2' is disconnected, since 22:13:28 UTC",
        "source 'In': ingress 'edge1' is disconnected, since 22:13:34 UTC",
        "source 'In': ingress 'edge1' is available again after 6 s",
        "source 'In': ingress 'edge2' is available again after 23 s",
    ]


def test_brokers_that_are_not_there_at_the_start_are_an_error_with_a_way_out() -> None:
    """It has given up: it must not say that it keeps trying."""
    query = TopicsQuery(
        "clicks", "127.0.0.1:1", ("t",), "earliest", "", "read_committed", "stop", False, False,
        request_s=0.2, patience_s=0.0,
    )  # fmt: skip
    with pytest.raises(PeerError) as raised:
        KafkaLog(query).beginning()
    assert str(raised.value) == (
        "source 'clicks': Kafka at 127.0.0.1:1 is unavailable (127.0.0.1:1: Connection refused), "
        "for 0 s now. Is it running? Start it, or correct brokers=; then run again."
    )


def test_that_no_broker_is_there_is_logged_at_once_and_the_start_waits_for_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client itself reports it after ten seconds only."""
    answers = iter(["k:9092: Connection refused", "k:9092: Connection refused", ""])
    monkeypatch.setattr(log, "why_unreachable", lambda addresses, within_s: next(answers))
    caplog.set_level(logging.INFO, "wallaroo")
    query = TopicsQuery(
        "clicks", "k:9092", ("t",), "earliest", "", "read_committed", "stop", False, False
    )

    KafkaLog(query)._await_brokers(log.FIRST_START_S)

    assert caplog.messages == [
        "source 'clicks': Kafka at k:9092 is unavailable (k:9092: Connection refused). "
        "Is it running? The run waits for 5 s."
    ]


def test_a_listener_that_does_not_answer_is_reported_before_the_start_gives_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        brokers = f"127.0.0.1:{silent.getsockname()[1]}"
        query = TopicsQuery(
            "clicks", brokers, ("t",), "earliest", "", "read_committed", "stop", False, False,
            request_s=1.0, patience_s=0.5, silent_s=0.1,
        )  # fmt: skip
        with pytest.raises(PeerError, match="in options=; then run"):
            KafkaLog(query).beginning()

    assert (
        f"source 'clicks': Kafka at {brokers} has not answered for 0.1 s. It accepts connections: "
        "if its listener expects TLS or a login, or does not, correct security.protocol in "
        "options=." in caplog.messages
    )


def test_the_largest_lags_are_kept_in_the_order_of_partitions() -> None:
    lags = {"t-0": 5, "t-1": 1, "t-2": 9}
    assert list(observer._largest(lags, most=2).items()) == [("t-0", 5), ("t-2", 9)]
    assert observer._largest(lags, most=3) == lags


def test_processes_are_sampled_with_those_that_ended() -> None:
    """Processor time is added up by name: a counter does not fall when a process ends."""
    clock = Clock(0.0)
    usage = ProcessUsage(clock)
    script = "import sys; sum(range(3_000_000)); print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it has used time
        first = usage.sample()
        assert first is not None
        assert (first[0].name, first[0].pid) == ("driver", os.getpid())
        assert child.pid in {process.pid for process in first if process.name == "other"}
        assert all(process.resident_bytes > 0 for process in first)
        assert usage.sample() is None  # too early
        child.kill()
    used_s = usage.cpu_s["other"]
    assert used_s > 0
    clock.now = SAMPLE_S
    then = usage.sample()
    assert then is not None
    assert child.pid not in {process.pid for process in then}
    assert usage.cpu_s["other"] >= used_s
