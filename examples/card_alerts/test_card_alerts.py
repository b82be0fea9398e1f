"""The cards, without HTTP and without waiting."""

from __future__ import annotations

import json

from card_alerts import application_setup

from wallaroo.testing import LocalApplication


def payment(number: int, kind: str, card: str = "c1") -> bytes:
    return json.dumps({"id": f"p{number}", "card": card, "kind": kind}).encode()


def texts(outputs: dict[str, list[bytes]]) -> list[str]:
    return [json.loads(alert)["text"] for alert in outputs["alerts"]]


def test_three_declines_in_a_row_block_a_card_once() -> None:
    running = LocalApplication(application_setup([]))
    running.send("payments", *(payment(number, "declined") for number in range(5)))

    assert texts(running.batch()) == ["blocked after 3 declines"]


def test_a_capture_starts_the_count_of_declines_again() -> None:
    running = LocalApplication(application_setup([]))
    kinds = ["declined", "declined", "captured", "declined", "declined"]
    running.send("payments", *(payment(number, kind) for number, kind in enumerate(kinds)))

    assert texts(running.batch()) == []


def test_an_authorisation_without_a_capture_is_reported_after_half_a_minute() -> None:
    running = LocalApplication(application_setup([]))
    running.send("payments", payment(1, "authorized"), payment(2, "authorized", "c2"))
    running.batch()
    assert texts(running.idle(20)) == []

    running.send("payments", payment(3, "captured", "c2"))
    running.batch()

    assert texts(running.idle(11)) == ["not captured within 30 seconds"]
    assert texts(running.idle(3_600)) == []


def test_a_card_is_forgotten_after_a_day_without_a_payment() -> None:
    running = LocalApplication(application_setup([]))
    running.send("payments", payment(1, "declined"), b"garbage")
    running.batch()
    assert list(running.result().state("watch")) == ["c1"]

    running.idle(24 * 3_600 + 1)

    assert running.result().state("watch") == {}
    assert running.result().errors == {"decode json Payment": 1}
