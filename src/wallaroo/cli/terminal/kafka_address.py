"""``kafka://HOST:PORT/TOPIC``: addresses of topics on the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

from wallaroo.network.reachability import parse_address

SCHEME = "kafka://"


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """A topic of a cluster, and librdkafka options for the connection."""

    brokers: str
    topic: str
    options: dict[str, str] = field(default_factory=dict, repr=False)  # may hold a password

    def __str__(self) -> str:
        return f"{SCHEME}{self.brokers}/{self.topic}"


def is_kafka(text: str) -> bool:
    """Return whether a target names a topic rather than a port."""
    return text.startswith(SCHEME)


def kafka_address(text: str, options: list[str]) -> KafkaAddress:
    """Parse an address and options ``NAME=VALUE``.  Raises ValueError with a sentence for users.

    >>> print(kafka_address("kafka://a:9092,b:9092/words", []))
    kafka://a:9092,b:9092/words
    """
    brokers, _, topic = text.removeprefix(SCHEME).partition("/")
    if not topic or "/" in topic or not all(map(parse_address, brokers.split(","))):
        raise ValueError(f"{text!r} is not of the form {SCHEME}HOST:PORT[,HOST:PORT]/TOPIC.")
    pairs = [option.partition("=") for option in options]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise ValueError(f"--kafka-option: {name!r} is not of the form NAME=VALUE.")
    return KafkaAddress(brokers, topic, {name: value for name, _, value in pairs})


def add_kafka_options(parser: argparse.ArgumentParser) -> None:
    """Add the Kafka options that sending and receiving share."""
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="Kafka: a record is its key, TEXT and its value (default: values only)",
    )
    parser.add_argument(
        "--kafka-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="Kafka: one of librdkafka's options, such as security.protocol=ssl",
    )
