"""Connectors: a folder per external system, and the table of public names.

Where it runs: everywhere.  Importing it loads none of them: ``wallaroo.sources`` and
``wallaroo.sinks`` load a name at its first use, and with it the system's client library.

In a folder, ``source.py`` and ``sink.py`` hold configurations, which are pickled; sinks' writers
run in workers.  ``committer.py`` runs in the driver, feeds and their servers in feeder processes,
and ``client.py`` in both.  A client library is optional: what imports it is imported only to open a
source or sink.

Each system has a folder here (source, sink, client), its tests in ``tests/connectors/<system>``,
its page in ``docs/connectors``, a line in the table, and an extra in ``pyproject.toml`` if it needs
a library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connector:
    """The public names of one system, each as ``module:name`` within its folder."""

    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()


CONNECTORS = {
    "files": Connector(("source:FilesSourceConfig",), ("sink:RollingSinkConfig",)),
    "function": Connector((), ("sink:FunctionSinkConfig",)),
    "http": Connector(("source:HTTPSourceConfig",), ("sink:HTTPSinkConfig",)),
    "kafka": Connector(
        ("source:KafkaSourceConfig", "record:KafkaRecord"),
        ("sink:KafkaSinkConfig", "output:KafkaOutput"),
    ),
    "lake.delta": Connector((), ("sink:DeltaSinkConfig",)),
    "lake.iceberg": Connector((), ("sink:IcebergSinkConfig",)),
    "mqtt": Connector(("source:MQTTSourceConfig",), ("sink:MQTTSinkConfig",)),
    "nats": Connector(("source:NATSSourceConfig", "message:NATSMessage"), ("sink:NATSSinkConfig",)),
    "rabbitmq": Connector(("source:RabbitMQSourceConfig",), ("sink:RabbitMQSinkConfig",)),
    "redis": Connector(("source:RedisSourceConfig", "entry:RedisEntry"), ("sink:RedisSinkConfig",)),
    "spark": Connector(("source:SparkSourceConfig",), ()),
    "sql": Connector((), ("rows:row_encoder",)),
    "sql.postgres": Connector(
        ("source:PostgresSourceConfig", "source:PostgresChangesConfig"),
        ("sink:PostgresSinkConfig", "rows:copy_row"),
    ),
    "sql.sqlite": Connector(("source:SQLiteSourceConfig",), ("sink:SQLiteSinkConfig",)),
    "udp": Connector(("source:UDPSourceConfig",), ("sink:UDPSinkConfig",)),
    "websocket": Connector(
        ("source:WebSocketSourceConfig", "source:WebSocketServerSourceConfig"),
        ("sink:WebSocketSinkConfig",),
    ),
}


def source_names() -> dict[str, str]:
    """Return the module of each public name of ``wallaroo.sources`` that a connector has."""
    return dict(_modules((system, connector.sources) for system, connector in CONNECTORS.items()))


def sink_names() -> dict[str, str]:
    """Return the module of each public name of ``wallaroo.sinks`` that a connector has."""
    return dict(_modules((system, connector.sinks) for system, connector in CONNECTORS.items()))


def _modules(systems: Iterator[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, str]]:
    for system, entries in systems:
        for entry in entries:
            module, _, name = entry.partition(":")
            yield name, f"{__name__}.{system}.{module}"
