"""What the status and the log say of a sink that waits."""

from __future__ import annotations

import logging

import pytest

from wallaroo.runtime.lifecycle.sinks import LOGGED_S, NAMED_S, REPEATED_S, Wait
from wallaroo.sinks.interface import SinkStatus

BEGAN = 1_700_000_000.0  # 22:13:20 UTC
AWAY = "Kafka at k:9092 (no confirmation)"


@pytest.fixture
def wait() -> Wait:
    return Wait("kafka-2", "kafka late")


def status(outputs: int = 0, pending: int = 0, waiting_for: str = "", batch: int = 0) -> SinkStatus:
    return SinkStatus(
        committed_batch=batch, outputs=outputs, waiting_for=waiting_for, pending_bytes=pending
    )


def test_a_cause_is_named_with_the_time_at_which_the_wait_began(wait: Wait) -> None:
    wait.note(status(pending=10, waiting_for=AWAY), BEGAN)
    wait.note(status(pending=20, waiting_for=AWAY), BEGAN + 100.0)
    assert wait.words == f"{AWAY}, since 22:13:20 UTC"
    assert wait.since == BEGAN


def test_output_that_stays_is_named_although_the_sink_names_no_cause(wait: Wait) -> None:
    wait.note(status(pending=10), BEGAN)
    assert wait.words == ""
    wait.note(status(pending=20), BEGAN + NAMED_S)
    assert wait.words == "kafka late (nothing taken for 2 s), since 22:13:20 UTC"


def test_a_sink_that_sends_does_not_wait_however_much_it_has(wait: Wait) -> None:
    for second in range(10):
        wait.note(status(outputs=second, pending=1000), BEGAN + second)
        assert wait.words == ""
        assert wait.since == BEGAN + second


def test_part_of_a_batch_that_left_is_progress(wait: Wait) -> None:
    wait.note(status(pending=1000), BEGAN)
    wait.note(status(pending=900), BEGAN + 60.0)
    assert wait.since == BEGAN + 60.0


def test_batches_without_output_do_not_end_a_wait(wait: Wait) -> None:
    wait.note(status(waiting_for=AWAY, batch=1), BEGAN)
    wait.note(status(waiting_for=AWAY, batch=2), BEGAN + 60.0)
    assert wait.since == BEGAN


def test_a_sink_that_gathers_output_for_a_file_does_not_wait(wait: Wait) -> None:
    gathering = status(pending=1000)
    gathering.is_gathering = True
    wait.note(gathering, BEGAN)
    wait.note(gathering, BEGAN + 60.0)
    assert (wait.words, wait.since) == ("", None)


def test_the_log_names_a_wait_that_lasts_seldom_and_its_end(
    wait: Wait, caplog: pytest.LogCaptureFixture
) -> None:
    held = status(outputs=5, pending=190_669, waiting_for=AWAY)
    wait.note(status(outputs=5), BEGAN - 1.0)
    with caplog.at_level(logging.WARNING, "wallaroo.run"):
        for second in range(int(REPEATED_S + LOGGED_S) + 2):
            wait.note(held, BEGAN + second)
        wait.note(status(outputs=105, pending=1_000), BEGAN + 400.0)
        wait.note(status(outputs=120), BEGAN + 401.0)
    line = f"sink 'kafka-2' waits for {AWAY}, since 22:13:20 UTC; 190,669 bytes not sent"
    assert caplog.messages == [
        line,
        line,
        "sink 'kafka-2' has resumed after 400 s: 100 outputs sent, 1,000 bytes to go",
    ]


def test_a_short_wait_is_not_logged(wait: Wait, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "wallaroo.run"):
        wait.note(status(pending=10, waiting_for=AWAY), BEGAN)
        wait.note(status(outputs=1), BEGAN + LOGGED_S - 0.1)
    assert caplog.messages == []
