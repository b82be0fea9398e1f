"""The interface of sinks, for those who write one, and ready-made sinks.

Where it runs: everywhere; see below.

A sink is three classes.  All outputs of a batch go through them in three verbs:

1. **Write**, in the tasks: ``SinkConfig.writer(context)`` creates a ``SinkWriter``.  It gets
   encoded outputs in order (``write``, many times), stages them out of sight, and returns a *token*
   that names the place (``prepare``).
2. **Commit**, in the driver: once the batch and its tokens are recorded in the checkpoint,
   ``SinkCommitter.commit(commit, tokens)`` makes the output visible, tokens in output order.
3. **Abort**: the batch did not commit; drop what the tokens name.

What a sink must keep to be exactly-once:

* A task may run more than once.  Name what is staged after ``context.attempt``; only one attempt's
  token comes back.
* ``commit`` may be called again for the last commit after a crash.  It must know by the commit's
  identity that it was there before; best in the same transaction as the output.
* A ``CommitId`` names the checkpoint, the batch and an id.  Numbers of batches begin at 0 again
  with a fresh checkpoint and come again after a rollback; ids do not.
* A crash may prevent ``abort``.  ``recover(history, tokens)``, called before the first batch, gets
  the retained commits and the tokens of the last one: finish that one, remove everything else that
  is staged, and refuse to continue after output of a commit that is not in ``history``.
* ``rollback(to, tokens)`` is optional; see ``SinkCommitter.rollback``.
* Tokens go into the checkpoint: small and JSON-able; ``None`` means that nothing was written.

The configuration is a frozen dataclass, pickled on its way to workers: open connections in
``writer`` and ``committer``, not in it.  docs/sinks.md has a sink of one page.  ``StagedWriter``,
``read_staged``, ``remove_staged`` and ``remove_orphans`` stage outputs that are too large for a
token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wallaroo.deferred import deferred

if TYPE_CHECKING:
    from wallaroo.identity import CommitHistory, CommitId
    from wallaroo.sinks.function import FunctionSinkConfig
    from wallaroo.sinks.http.config import HTTPSinkConfig
    from wallaroo.sinks.interface import (
        SinkCommitter,
        SinkConfig,
        SinkStatus,
        SinkWriter,
        WriteContext,
    )
    from wallaroo.sinks.kafka.config import KafkaSinkConfig
    from wallaroo.sinks.kafka.records import KafkaOutput
    from wallaroo.sinks.mqtt.config import MQTTSinkConfig
    from wallaroo.sinks.nats.config import NATSSinkConfig
    from wallaroo.sinks.postgres.config import PostgresSinkConfig
    from wallaroo.sinks.postgres.rows import copy_row, row_encoder
    from wallaroo.sinks.rabbitmq.config import RabbitMQSinkConfig
    from wallaroo.sinks.redis.config import RedisSinkConfig
    from wallaroo.sinks.rolling.config import RollingSinkConfig
    from wallaroo.sinks.sqlite.config import SQLiteSinkConfig
    from wallaroo.sinks.staging import StagedWriter, read_staged, remove_orphans, remove_staged
    from wallaroo.sinks.udp.config import UDPSinkConfig
    from wallaroo.sinks.websocket.config import WebSocketSinkConfig
else:
    __getattr__ = deferred(
        __name__,
        {
            "wallaroo.identity": ("CommitHistory", "CommitId"),
            "wallaroo.sinks.function": ("FunctionSinkConfig",),
            "wallaroo.sinks.http.config": ("HTTPSinkConfig",),
            "wallaroo.sinks.interface": (
                "SinkCommitter",
                "SinkConfig",
                "SinkStatus",
                "SinkWriter",
                "WriteContext",
            ),
            "wallaroo.sinks.kafka.config": ("KafkaSinkConfig",),
            "wallaroo.sinks.kafka.records": ("KafkaOutput",),
            "wallaroo.sinks.mqtt.config": ("MQTTSinkConfig",),
            "wallaroo.sinks.nats.config": ("NATSSinkConfig",),
            "wallaroo.sinks.postgres.config": ("PostgresSinkConfig",),
            "wallaroo.sinks.postgres.rows": ("copy_row", "row_encoder"),
            "wallaroo.sinks.rabbitmq.config": ("RabbitMQSinkConfig",),
            "wallaroo.sinks.redis.config": ("RedisSinkConfig",),
            "wallaroo.sinks.rolling.config": ("RollingSinkConfig",),
            "wallaroo.sinks.sqlite.config": ("SQLiteSinkConfig",),
            "wallaroo.sinks.staging": (
                "StagedWriter",
                "read_staged",
                "remove_orphans",
                "remove_staged",
            ),
            "wallaroo.sinks.udp.config": ("UDPSinkConfig",),
            "wallaroo.sinks.websocket.config": ("WebSocketSinkConfig",),
        },
    )


# fmt: off
__all__ = [
    # to write a sink
    "SinkConfig", "SinkWriter", "SinkCommitter", "SinkStatus", "WriteContext",
    "CommitId", "CommitHistory",
    # to stage large outputs
    "StagedWriter", "read_staged", "remove_staged", "remove_orphans",
    # a function of your own
    "FunctionSinkConfig",
    # requests
    "HTTPSinkConfig",
    # MQTT
    "MQTTSinkConfig",
    # NATS JetStream
    "NATSSinkConfig",
    # RabbitMQ
    "RabbitMQSinkConfig",
    # Redis
    "RedisSinkConfig",
    # files by size and time, and objects
    "RollingSinkConfig",
    # PostgreSQL
    "PostgresSinkConfig", "row_encoder", "copy_row",
    # SQLite
    "SQLiteSinkConfig",
    # UDP
    "UDPSinkConfig",
    # WebSocket servers
    "WebSocketSinkConfig",
    # Kafka
    "KafkaSinkConfig", "KafkaOutput",
]
# fmt: on
