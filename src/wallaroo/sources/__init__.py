"""The parts of a source, for authors of sources.

Where it runs: everywhere; see below.

* `ReplayableSource`: for events that can be read again from their system (a table, a queue with
  offsets, files).  Workers read ranges of offsets; nothing is copied.
* `PollingSource`, `IteratorSource`, `PushSource`: one process polls, iterates, or is called back,
  and writes the events to the spool.
* `SourceConfig` and `SourceLog`: the interfaces below both, for positions other than offsets.

docs/sources.md has both in ten lines each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wallaroo.deferred import deferred

if TYPE_CHECKING:
    from wallaroo.sources.files.config import FilesSourceConfig
    from wallaroo.sources.http.config import HTTPSourceConfig
    from wallaroo.sources.interface import FedBy, SourceConfig
    from wallaroo.sources.iterator import At, IteratorSource
    from wallaroo.sources.kafka.config import KafkaSourceConfig
    from wallaroo.sources.kafka.records import KafkaRecord
    from wallaroo.sources.log import Head, LogContext, Position, Range, Records, SourceLog
    from wallaroo.sources.mqtt.config import MQTTSourceConfig
    from wallaroo.sources.nats.config import NATSSourceConfig
    from wallaroo.sources.nats.message import NATSMessage
    from wallaroo.sources.polling import PollingSource
    from wallaroo.sources.postgres.config import PostgresSourceConfig
    from wallaroo.sources.push import Push, PushSource
    from wallaroo.sources.rabbitmq.config import RabbitMQSourceConfig
    from wallaroo.sources.redis.config import RedisSourceConfig
    from wallaroo.sources.redis.entry import RedisEntry
    from wallaroo.sources.replayable import ReplayableSource
    from wallaroo.sources.sqlite.config import SQLiteSourceConfig
    from wallaroo.sources.udp.config import UDPSourceConfig
    from wallaroo.sources.websocket.config import WebSocketSourceConfig
    from wallaroo.sources.websocket.server_config import WebSocketServerSourceConfig
else:
    __getattr__ = deferred(
        __name__,
        {
            "wallaroo.sources.files.config": ("FilesSourceConfig",),
            "wallaroo.sources.http.config": ("HTTPSourceConfig",),
            "wallaroo.sources.interface": ("FedBy", "SourceConfig"),
            "wallaroo.sources.kafka.config": ("KafkaSourceConfig",),
            "wallaroo.sources.kafka.records": ("KafkaRecord",),
            "wallaroo.sources.log": (
                "Head",
                "LogContext",
                "Position",
                "Range",
                "Records",
                "SourceLog",
            ),
            "wallaroo.sources.mqtt.config": ("MQTTSourceConfig",),
            "wallaroo.sources.nats.config": ("NATSSourceConfig",),
            "wallaroo.sources.nats.message": ("NATSMessage",),
            "wallaroo.sources.polling": ("PollingSource",),
            "wallaroo.sources.postgres.config": ("PostgresSourceConfig",),
            "wallaroo.sources.iterator": ("At", "IteratorSource"),
            "wallaroo.sources.push": ("Push", "PushSource"),
            "wallaroo.sources.rabbitmq.config": ("RabbitMQSourceConfig",),
            "wallaroo.sources.redis.config": ("RedisSourceConfig",),
            "wallaroo.sources.redis.entry": ("RedisEntry",),
            "wallaroo.sources.replayable": ("ReplayableSource",),
            "wallaroo.sources.sqlite.config": ("SQLiteSourceConfig",),
            "wallaroo.sources.udp.config": ("UDPSourceConfig",),
            "wallaroo.sources.websocket.config": ("WebSocketSourceConfig",),
            "wallaroo.sources.websocket.server_config": ("WebSocketServerSourceConfig",),
        },
    )


# fmt: off
__all__ = [
    # to write a source
    "ReplayableSource", "PollingSource", "IteratorSource", "At", "PushSource", "Push",
    # a log of your own
    "SourceConfig", "FedBy", "SourceLog", "LogContext", "Position", "Head", "Range", "Records",
    # many files, and objects
    "FilesSourceConfig",
    # webhooks
    "HTTPSourceConfig",
    # MQTT
    "MQTTSourceConfig",
    # NATS JetStream
    "NATSSourceConfig", "NATSMessage",
    # PostgreSQL
    "PostgresSourceConfig",
    # RabbitMQ
    "RabbitMQSourceConfig",
    # Redis
    "RedisSourceConfig", "RedisEntry",
    # SQLite
    "SQLiteSourceConfig",
    # UDP
    "UDPSourceConfig",
    # WebSocket servers, and clients
    "WebSocketSourceConfig", "WebSocketServerSourceConfig",
    # Kafka
    "KafkaSourceConfig", "KafkaRecord",
]
# fmt: on
