"""What Kafka clients log, and which of their errors go away by themselves."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from wallaroo.connectors.kafka.client import (
    SINK_LOGGER,
    SPARED_S,
    SparingFilter,
    hint_at,
    is_transient,
)


def record_of(text: str) -> logging.LogRecord:
    return logging.LogRecord("wallaroo.kafka", logging.ERROR, "", 0, text, None, None)


def test_a_client_that_cannot_connect_is_logged_once_a_minute() -> None:
    now = [0.0]
    spare = SparingFilter(lambda: now[0])

    def is_logged(text: str) -> bool:
        return spare.filter(record_of(text))

    refused = "FAIL [wallaroo#consumer-{}] [thrd:127.0.0.1:9/{}]: Connect to {} failed: refused"
    assert is_logged(refused.format(1, "bootstrap", "a"))
    assert not is_logged(refused.format(2, "bootstrap", "b"))
    assert is_logged(refused.format(1, "1", "a"))
    assert is_logged("FENCED [wallaroo#producer-1] [thrd:main]: fenced")
    now[0] = SPARED_S
    assert is_logged(refused.format(3, "bootstrap", "a"))


def test_what_is_no_line_of_the_client_is_logged() -> None:
    spare = SparingFilter()

    assert [spare.filter(record_of("offsets are not published")) for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError._TRANSPORT, True),
        (KafkaError._UNKNOWN_PARTITION, True),
        (-137, True),  # the handle of a broker was replaced
        (KafkaError._AUTHENTICATION, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_what_a_broker_that_restarts_causes_is_waited_for(code: int, expected: bool) -> None:
    assert is_transient(KafkaError(code)) is expected


def test_a_sink_s_consumers_do_not_warn_of_the_options_of_its_producer() -> None:
    kind = "CONFWARN [wallaroo#consumer-1] [thrd:app]: Configuration property {}"
    ignored = "transaction.timeout.ms is a producer property and will be ignored by this consumer"

    assert not SINK_LOGGER.filter(record_of(kind.format(ignored)))
    assert SINK_LOGGER.filter(record_of(kind.format("api.version is deprecated")))


def test_a_topic_with_a_similar_name_may_still_be_one_that_the_user_may_not_see() -> None:
    way_out = "reate it, correct its name, or give the user the right Describe on it."

    assert hint_at("out2", ["out"]) == f"Did you mean 'out'? If not, c{way_out}"
    assert hint_at("out2", []) == f"C{way_out}"
