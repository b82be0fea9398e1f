"""A real Kafka broker for tests: one node, KRaft, on loopback, in a folder of its own.

Where it runs: tests.  The artifacts come from `scripts/setup-test-servers`, which copies them to
``.servers/kafka`` with Maven; nothing else is installed.  The broker's data survive `kill` and
`start`; `stop` is orderly.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer

from tests.connectors.kafka.admin import Admin
from tests.connectors.kafka.secured import Secured, secured_listener
from wallaroo.spark.local_cluster.hosts import free_ports

ARTIFACTS = Path(__file__).resolve().parents[3] / ".servers" / "kafka"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
START_S_MAX = 400.0  # on a crowded machine
STOP_S_MAX = 30.0
# of Java: a broker that starts soon, and one that is quick once it has been at work for a minute
QUICK = ("-Xmx384m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LASTING = ("-Xmx512m", "-Xms512m", "-XX:+UseSerialGC")

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
num.partitions=2
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=500
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.threads=1
"""


# Kafka's own defaults
USUAL = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "log.retention.check.interval.ms": "300000",
    "log.cleaner.backoff.ms": "15000",
}


@dataclass(slots=True)
class Broker:
    """One broker process; ``address`` is what clients call bootstrap servers."""

    folder: Path
    port: int
    controller_port: int
    properties: Mapping[str, str] = field(default_factory=dict)
    secured: Secured | None = None  # the same with TLS and a password
    java_options: Sequence[str] = QUICK
    process: subprocess.Popen[bytes] | None = None
    _admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """What changes topics."""
        if self._admin is None:
            self._admin = Admin(self.address)
        return self._admin

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, or start again on the same data; return when the broker answers."""
        config = self.folder / "server.properties"
        if not (self.folder / "data" / "meta.properties").exists():
            own = "".join(f"{name}={value}\n" for name, value in self.properties.items())
            text = PROPERTIES.format(
                folder=self.folder, port=self.port, controller=self.controller_port
            )
            config.write_text(text + own)
            command = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID)
            subprocess.run([*command, "-c", str(config)], check=True, capture_output=True)
        log = open(self.folder / "broker.log", "ab")  # noqa: SIM115  # the child's until it ends
        try:
            self.process = subprocess.Popen(
                self._java("kafka.Kafka", str(config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        finally:
            log.close()
        self._wait_until_it_answers()

    def kill(self) -> None:
        """SIGKILL; the data stay."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End in order; after a while by force."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic; return when it can be used."""
        self.admin.create_topic(
            topic, partitions, {k.replace("_", "."): v for k, v in config.items()}
        )
        deadline = time.monotonic() + START_S_MAX
        while self._partitions(topic) != partitions:
            assert time.monotonic() < deadline, f"topic {topic} did not appear"

    def create_again(self, topic: str, partitions: int = 1) -> None:
        """Delete a topic and create another one of its name; return when that can be used."""
        self.admin.delete_topic(topic)
        self.create(topic, partitions)

    def _partitions(self, topic: str) -> int:
        with closing(self._client()) as client:
            return len(client.list_topics(topic, 10).topics[topic].partitions)

    def _client(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.address, "group.id": "unused"})

    def _java(self, *arguments: str) -> list[str]:
        java = os.environ.get("JAVA_HOME")
        program = f"{java}/bin/java" if java else "java"
        return [program, *self.java_options, "-cp", f"{ARTIFACTS}/*", *arguments]

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.folder / "broker.log").read_text()[-2000:]
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1.0):
                    break
            except OSError:
                time.sleep(0.05)
        with closing(self._client()) as client:
            client.list_topics(timeout=START_S_MAX)


@contextmanager
def running_broker(
    folder: Path,
    *,
    is_secured: bool = False,
    is_quick: bool = True,
    **properties: str,
) -> Iterator[Broker]:
    """A broker with data in ``folder``; stopped at the end.  One that is not ``is_quick`` to start
    takes a minute until it is quick at work, as others do, and looks after its files as often as
    they do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port, controller, third = free_ports(3)
    named = {name.replace("_", "."): value for name, value in properties.items()}
    if not is_quick:
        named = USUAL | named
    secured = None
    if is_secured:
        secured, more = secured_listener(folder, (port, controller, third))
        named |= more
    broker = Broker(folder, port, controller, named, secured, QUICK if is_quick else LASTING)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
