"""Card alerts: a state machine for each payment card, with timers, expiry and HTTP at both ends.

Payments are posted to the application as JSON.  A card that is declined three times in a row is
blocked, with an alert; an authorisation that is not captured within half a minute is one, too.
What is known of a card is forgotten after a day without a payment.  Alerts are posted to a server.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import wallaroo
from wallaroo.serdes import Json
from wallaroo.sinks import HTTPSinkConfig
from wallaroo.sources import HTTPSourceConfig

DECLINES_MAX = 3


@dataclass(frozen=True)
class Payment:
    """A step of a payment with a card."""

    id: str
    card: str
    kind: Literal["authorized", "captured", "declined"]


@dataclass(frozen=True)
class Alert:
    """Something that a person should look at."""

    card: str
    payment: str
    text: str


class Phase(Enum):
    """The states of a card."""

    IDLE = "idle"
    AUTHORIZED = "authorized"  # a timer runs
    BLOCKED = "blocked"


class Card:
    """All that is known of one card."""

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.payment = ""
        self.declines = 0


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: payments over HTTP -> alerts over HTTP."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7080)
    parser.add_argument("--alerts", default="http://127.0.0.1:7090/alerts")
    options = parser.parse_args(args)

    payments = HTTPSourceConfig(
        "payments",
        "127.0.0.1",
        options.port,
        Json(Payment, on_error="skip").decoder,
        path="/payments",
        lines=True,
    )
    return wallaroo.build_application(
        "Card alerts",
        wallaroo.source("payments", payments)
        .key_by(card_of)
        .to(watch)
        .to_sink(HTTPSinkConfig(options.alerts, Json(Alert).encoder, name="alerts")),
    )


@wallaroo.key_extractor
def card_of(payment: Payment) -> str:
    """Return the card, which has a state of its own."""
    return payment.card


@wallaroo.state_computation(name="watch", state=Card, ttl=wallaroo.hours(24), ttl_time="processing")
def watch(payment: Payment, card: Card, context: wallaroo.Context) -> Alert | None:
    """Take a card from state to state."""
    if card.phase is Phase.BLOCKED:
        return None
    if payment.kind == "declined":
        card.declines += 1
        if card.declines < DECLINES_MAX:
            return None
        card.phase = Phase.BLOCKED
        context.cancel_timer("capture")
        return Alert(payment.card, payment.id, f"blocked after {DECLINES_MAX} declines")
    card.declines = 0
    if payment.kind == "authorized":
        card.phase = Phase.AUTHORIZED
        card.payment = payment.id
        context.set_timer_after("capture", wallaroo.seconds(30), processing=True)
    else:
        card.phase = Phase.IDLE
        context.cancel_timer("capture")
    return None


@watch.on_timer
def is_overdue(card: Card, context: wallaroo.Context, name: str) -> Alert:
    """Report an authorisation that was not captured in time."""
    card.phase = Phase.IDLE
    return Alert(str(context.key), card.payment, "not captured within 30 seconds")
