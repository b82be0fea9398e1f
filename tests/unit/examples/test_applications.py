"""What the pages of the four applications print is what their sample data give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import card_alerts
import kafka_sessions
import payment_scores

from wallaroo.testing import LocalApplication, run_local


def printed(page: Path) -> list[object]:
    """Return the JSON lines of a page."""
    lines = re.findall(r"^\{.*\}$|(?<=`)\{.*?\}(?=`)", page.read_text(), re.MULTILINE)
    return [json.loads(line) for line in lines]


def test_the_sessions(examples: Path) -> None:
    folder = examples / "kafka_sessions"
    clicks = (folder / "clicks.jsonl").read_bytes().splitlines()

    run = run_local(kafka_sessions.application_setup([]), {"clicks": clicks})

    found = [json.loads(out[out.index(b"{") :]) for out in run.by_sink["sessions"]]
    assert sorted(found, key=str) == sorted(printed(folder / "README.md"), key=str)
    assert len(run.by_sink["late"]) == 1
    assert run.errors == {"decode json Click": 1}


def test_the_alerts(examples: Path) -> None:
    folder = examples / "card_alerts"
    running = LocalApplication(card_alerts.application_setup([]))
    running.send("payments", *(folder / "payments.jsonl").read_bytes().splitlines())
    running.batch()
    running.idle(30)

    alerts = running.result().by_sink["alerts"]
    assert [json.loads(alert) for alert in alerts] == printed(folder / "README.md")


def test_the_first_score(examples: Path) -> None:
    folder = examples / "payment_scores"
    lines = (folder / "payments.jsonl").read_bytes().splitlines()

    run = run_local(payment_scores.application_setup([]), {"payments": lines})

    assert [json.loads(run.outputs[0])] == printed(folder / "README.md")
