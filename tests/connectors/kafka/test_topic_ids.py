"""Questions for topics' ids that no broker answers."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from wallaroo.connectors.kafka.topic_ids import TopicIds

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def test_without_a_broker_the_question_times_out() -> None:
    with pytest.raises(KafkaException) as raised:
        TopicIds(NOWHERE, 0.2).of(["topic"])
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT


def test_no_topics_have_no_ids_and_need_no_broker() -> None:
    assert TopicIds(NOWHERE, 0.2).of([]) == {}


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(KafkaException, match=r"no\.such\.option"):
        TopicIds({**NOWHERE, "no.such.option": "x"}, 0.2)
