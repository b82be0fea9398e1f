"""Sessions from Kafka: each user's clicks, from the first one to half a minute without any.

Clicks carry their own time, and may come ten seconds out of order.  Sessions go to the topic
``sessions``, clicks that come too late to ``late-clicks``, and records that are not clicks to
``bad-clicks``: each click is in one of them, once.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from datetime import timedelta

import wallaroo
from wallaroo.serdes import Json


@dataclass(frozen=True)
class Click:
    """A user looked at a page, in seconds since 1970."""

    user: str
    page: str
    at: float


@dataclass(frozen=True)
class Session:
    """What a user did without a pause."""

    user: str
    pages: list[str]
    seconds: float


def application_setup(args: list[str]) -> wallaroo.Application:
    """Build the application: a topic of clicks -> topics of sessions, late and bad clicks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--brokers", default="127.0.0.1:9092")
    parser.add_argument("--until-now", action="store_true", help="end at the topic's present end")
    options = parser.parse_args(args)

    clicks = wallaroo.source(
        "clicks",
        wallaroo.KafkaSourceConfig(
            "clicks",
            "clicks",
            options.brokers,
            Json(Click, on_error="dead-letter").decoder,
            until_now=options.until_now,
        ),
    )
    sessions, late = (
        clicks.with_event_time(
            time_of, delay=timedelta(seconds=10), idle_after=timedelta(minutes=1)
        )
        .key_by(user_of)
        .to(wallaroo.session_windows(timedelta(seconds=30)).over(Pages))
        .with_late_events()
    )
    return wallaroo.build_application(
        "Sessions",
        sessions.to_sink(
            wallaroo.KafkaSinkConfig(
                "sessions",
                options.brokers,
                Json(Session).keyed_encoder(lambda session: session.user),
                name="sessions",
            )
        ),
        late.to_sink(
            wallaroo.KafkaSinkConfig(
                "late-clicks",
                options.brokers,
                Json(Click).keyed_encoder(lambda click: click.user),
                name="late",
            )
        ),
        dead_letters=wallaroo.KafkaSinkConfig("bad-clicks", options.brokers, Json().encoder),
    )


def time_of(click: Click) -> float:
    """Return the time that a click carries."""
    return click.at


@wallaroo.key_extractor
def user_of(click: Click) -> str:
    """Return the user, who has sessions of their own."""
    return click.user


class Pages(wallaroo.Aggregation[Click, list[tuple[float, str]], Session]):
    """The pages of a session, in the order of their times."""

    def initial_accumulator(self) -> list[tuple[float, str]]:
        return []

    def update(self, click: Click, pages: list[tuple[float, str]], /) -> None:
        pages.append((click.at, click.page))

    def combine(
        self, left: list[tuple[float, str]], right: list[tuple[float, str]], /
    ) -> list[tuple[float, str]]:
        return left + right

    def output(self, user: str, pages: list[tuple[float, str]], /) -> Session:
        pages = sorted(pages)
        return Session(user, [page for _, page in pages], pages[-1][0] - pages[0][0])
