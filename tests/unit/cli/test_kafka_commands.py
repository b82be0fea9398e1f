"""``wallaroo send`` and ``receive`` with Kafka topics, on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.kafka.broker import Broker
from tests.connectors.kafka.fixtures import broker, committed_records, topic
from wallaroo.cli.main import main
from wallaroo.spark.local_cluster.hosts import free_ports

__all__ = ["broker", "topic"]


@pytest.mark.kafka
@pytest.mark.java
def test_lines_become_records_and_records_lines(
    broker: Broker, topic: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [f"key{number % 7}:value {number}" for number in range(500)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    address = f"kafka://{broker.address}/{topic}"

    send = ["send", "--to", address, "--file", str(tmp_path / "lines.txt"), "--key-separator", ":"]
    assert main([*send, "--count", "400"]) == 0
    assert "sent 400 messages" in capfd.readouterr().out
    stored = committed_records(broker, topic)
    assert sorted(f"{m.key().decode()}:{m.value().decode()}" for m in stored) == sorted(lines[:400])  # type: ignore[attr-defined]

    out = tmp_path / "out.txt"
    receive = ["receive", "--from", address, "--out", str(out), "--key-separator", ":"]
    assert main([*receive, "--until-now"]) == 0
    assert sorted(out.read_text().splitlines()) == sorted(lines[:400])
    assert "Received 400 records" in capfd.readouterr().err

    assert main([*receive, "--count", "3", "--timeout", "60"]) == 0
    assert len(out.read_text().splitlines()) == 3
    assert main([*receive, "--until-now", "--count", "401"]) == 1
    assert "1 of 401 records missing at the end of the topic" in capfd.readouterr().err

    assert (
        main(["send", "--to", address, "--numbers", "20", "--rate", "1000", "--repeat", "2"]) == 0
    )
    assert len(committed_records(broker, topic)) == 440
    assert main(["send", "--to", f"{address}-missing", "--numbers", "1"]) == 1
    assert "Unknown topic" in capfd.readouterr().err
    assert main(["receive", "--from", f"{address}-missing"]) == 1
    assert "Unknown topic" in capfd.readouterr().err


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        (
            ["send", "--numbers=1", "--connect-timeout=3", "--to"],
            {"sasl.password": "a secret"},
            "uthentication",
        ),
        (["receive", "--from"], {"ssl.ca.location": ""}, "certificate verify failed"),
    ],
)
def test_a_refused_login_and_an_untrusted_broker_come_with_their_remedy(
    broker: Broker,
    topic: str,
    command: list[str],
    options: dict[str, str],
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert broker.secured is not None
    address = f"kafka://{broker.secured.address}/{topic}"
    pairs = {**broker.secured.options, **options}.items()
    own = [f"--kafka-option={name}={value}" for name, value in pairs if value]
    assert main([*command, address, *own]) == 1
    shown = capfd.readouterr().err
    assert f"cannot reach {address} within " in shown
    assert words in shown
    assert "Correct the login or the certificates: --kafka-option." in shown
    assert "a secret" not in shown


def test_an_option_that_librdkafka_does_not_know_is_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert main(["send", "--to", "kafka://a:1/t", "--numbers", "1", "--kafka-option=x=1"]) == 1
    assert '"x". Options have librdkafka\'s names; correct --kafka' in capfd.readouterr().err


def test_a_broker_that_is_not_there_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    address = f"kafka://127.0.0.1:{port}/words"
    assert main(["send", "--to", address, "--numbers", "1", "--connect-timeout", "0.5"]) == 1
    assert f"cannot reach {address} within 0.5 s" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["send", "--to", "kafka://a:1", "--numbers", "1"], "is not of the form kafka://HOST:PORT"),
        (
            ["send", "--to", "kafka://a:1/t", "--numbers", "1", "--stream", "s"],
            "leave out --stream",
        ),
        (
            ["send", "--to", "kafka://a:1/t", "--numbers", "1", "--kafka-option", "x"],
            "'x' is not of the form NAME=VALUE",
        ),
        (["receive", "--from", "a:1"], "To listen, use --listen"),
        (["receive", "--from", "kafka://a:1/t", "--form", "lines"], "leave out --form"),
        (["receive", "--listen", "127.0.0.1:0", "--latest"], "--latest and --until-now are for"),
    ],
)
def test_a_wrong_option_is_explained(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capfd.readouterr().err
