"""Wallaroo's helpers for Kafka on an application's command line.

The options and the tuples returned by the ``kafka_parse_*`` functions are Wallaroo's: a name, a
topic, a list of ``(host, port)`` strings (default port 9092), a log level.  The log level and the
sizes are read for compatibility; the client logs through `logging` under ``wallaroo.kafka``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from wallaroo.connectors.kafka.broker_names import LOG_LEVELS
from wallaroo.connectors.kafka.sink import KafkaSinkConfig
from wallaroo.connectors.kafka.source import KafkaSourceConfig
from wallaroo.steps.kinds import Decoder, Encoder

PORT = "9092"

Brokers = list[tuple[str, str]]


def kafka_parse_source_options(
    args: Sequence[str], prefix: str = "kafka_source"
) -> tuple[str, str, Brokers, str]:
    """Return ``(name, topic, brokers, log_level)`` from ``--kafka_source_name`` and so on.

    >>> kafka_parse_source_options(["--kafka_source_topic", "t", "--kafka_source_brokers", "a,b:1"])
    ('kafka_source', 't', [('a', '9092'), ('b', '1')], 'Warn')
    """
    parser = _parser(prefix)
    parser.add_argument(f"--{prefix}_name", dest="name", default=prefix)
    found, _ = parser.parse_known_args(list(args))
    return found.name, found.topic, _brokers(found.brokers), found.log_level


def kafka_parse_sink_options(
    args: Sequence[str], prefix: str = "kafka_sink"
) -> tuple[str, str, Brokers, str, int, int]:
    """Return ``("", topic, brokers, log_level, max_produce_buffer_ms, max_message_size)``.

    >>> kafka_parse_sink_options(["--kafka_sink_topic", "t", "--kafka_sink_brokers", "h:1"])
    ('', 't', [('h', '1')], 'Warn', 0, 100000)
    """
    parser = _parser(prefix)
    parser.add_argument(f"--{prefix}_max_produce_buffer_ms", dest="buffer_ms", type=int, default=0)
    parser.add_argument(
        f"--{prefix}_max_message_size", dest="message_size", type=int, default=100_000
    )
    found, _ = parser.parse_known_args(list(args))
    brokers = _brokers(found.brokers)
    return "", found.topic, brokers, found.log_level, found.buffer_ms, found.message_size


def _parser(prefix: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("wallaroo run APP", add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{prefix}_topic", dest="topic", required=True)
    parser.add_argument(
        f"--{prefix}_brokers", dest="brokers", required=True, metavar="HOST[:PORT],..."
    )
    parser.add_argument(
        f"--{prefix}_log_level", dest="log_level", choices=LOG_LEVELS, default="Warn"
    )
    return parser


def _brokers(text: str) -> Brokers:
    pairs = (broker.strip().partition(":") for broker in text.split(","))
    return [(host, port or PORT) for host, _, port in pairs]


def CustomKafkaSourceCLIParser(  # Wallaroo's name
    args: Sequence[str], decoder: Decoder[Any]
) -> KafkaSourceConfig[Any]:
    """Create a Kafka source from the options ``--kafka_source_*`` in ``args``."""
    name, topic, brokers, _ = kafka_parse_source_options(args)
    return KafkaSourceConfig(name, topic, brokers, decoder)


def CustomKafkaSinkCLIParser(args: Sequence[str], encoder: Encoder[Any]) -> KafkaSinkConfig:
    """Create a Kafka sink from the options ``--kafka_sink_*`` in ``args``."""
    _, topic, brokers, _, _, message_size = kafka_parse_sink_options(args)
    return KafkaSinkConfig(topic, brokers, encoder, options=_sized(message_size))


def DefaultKafkaSourceCLIParser(
    decoder: Decoder[Any], name: str = "kafka_source"
) -> KafkaSourceConfig[Any]:
    """Create a Kafka source from the options ``--<name>_*`` of the command line."""
    _, topic, brokers, _ = kafka_parse_source_options(_command_line(), name)
    return KafkaSourceConfig(name, topic, brokers, decoder)


def DefaultKafkaSinkCLIParser(encoder: Encoder[Any], name: str = "kafka_sink") -> KafkaSinkConfig:
    """Create a Kafka sink from the options ``--<name>_*`` of the command line."""
    _, topic, brokers, _, _, message_size = kafka_parse_sink_options(_command_line(), name)
    return KafkaSinkConfig(topic, brokers, encoder, options=_sized(message_size))


def _sized(message_size: int) -> dict[str, str]:
    return {"message.max.bytes": str(max(1000, message_size))}


def _command_line() -> tuple[str, ...]:
    return tuple(getattr(sys.modules["wallaroo"], "_ARGS", sys.argv))
