"""The sessions, without a broker."""

from __future__ import annotations

import json
from typing import Any

from kafka_sessions import application_setup

from wallaroo.testing import run_local

NOON = 1_767_182_400.0


def click(user: str, page: str, second: float) -> bytes:
    return json.dumps({"user": user, "page": page, "at": NOON + second}).encode()


def values(records: list[bytes]) -> list[Any]:
    """Return records' values; a record's key and length are in front."""
    return [json.loads(record[record.index(b"{") :]) for record in records]


def test_half_a_minute_without_a_click_ends_a_session() -> None:
    clicks = [click("ann", "/", 0), click("ann", "/tea", 29), click("ann", "/", 60)]

    run = run_local(application_setup([]), {"clicks": clicks})

    assert values(run.by_sink["sessions"]) == [
        {"user": "ann", "pages": ["/", "/tea"], "seconds": 29.0},
        {"user": "ann", "pages": ["/"], "seconds": 0.0},
    ]


def test_clicks_out_of_order_count_and_late_ones_go_to_a_topic_of_their_own() -> None:
    clicks = [click("ann", "/", 100), click("bob", "/", 91), click("cy", "/", 89)]

    run = run_local(application_setup([]), {"clicks": clicks})

    assert sorted(session["user"] for session in values(run.by_sink["sessions"])) == ["ann", "bob"]
    assert values(run.by_sink["late"]) == [{"user": "cy", "page": "/", "at": NOON + 89}]


def test_a_record_that_is_no_click_is_a_dead_letter() -> None:
    clicks = [b'{"user": "ann"}', click("ann", "/", 0)]

    run = run_local(application_setup([]), {"clicks": clicks})

    assert len(run.by_sink["sessions"]) == 1
    assert run.errors == {"decode json Click": 1}
