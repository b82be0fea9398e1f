"""Kafka's administration client in a process of its own: it runs Python in a thread of librdkafka,
where whatever the garbage collector frees can take the process with it.

Where it runs: tests; ``python -m tests.connectors.kafka.admin BROKERS`` reads a request a line and
answers each with a line, both JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

ROOT = Path(__file__).parents[3]
ANSWER_S_MAX = 400.0
FENCED = "brokers are currently fenced"  # what is said of one whose heartbeat is late
FENCED_S_MAX = 400.0


class Admin:
    """Changes topics; every call returns when the broker has done it."""

    def __init__(self, brokers: str):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.connectors.kafka.admin", brokers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create it."""
        self._ask("create_topic", topic, partitions, dict(config))

    def delete_topic(self, topic: str) -> None:
        """Delete it."""
        self._ask("delete_topic", topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Let a topic have so many partitions."""
        self._ask("grow", topic, partitions)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete what lies before an offset."""
        self._ask("delete_records", topic, partition, before)

    def allow(self, user: str, resource: str, name: str, pattern: str, operation: str) -> None:
        """Give a user a right."""
        self._ask("allow", user, resource, name, pattern, operation)

    def forbid(self, user: str) -> None:
        """Take all rights from a user."""
        self._ask("forbid", user)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, *request: Any) -> None:
        """Ask until it is done: on a busy machine a broker is fenced now and then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + FENCED_S_MAX
        answer = ""
        while answer.strip() != "done":
            assert time.monotonic() < deadline, f"not in time: {answer}"
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer.strip() == "done" or FENCED in answer, answer


def main() -> None:
    """Serve requests until stdin ends."""
    admin = AdminClient({"bootstrap.servers": sys.argv[1]})
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            for future in FUTURES[verb](admin, *arguments).values():
                future.result(ANSWER_S_MAX)
            print("done", flush=True)
        except KafkaException as error:  # the test that asked reports it
            print(repr(error), flush=True)


FUTURES = {
    "create_topic": lambda admin, topic, partitions, config: admin.create_topics(
        [NewTopic(topic, partitions, 1, config=config)]
    ),
    "delete_topic": lambda admin, topic: admin.delete_topics([topic]),
    "grow": lambda admin, topic, partitions: admin.create_partitions(
        [NewPartitions(topic, partitions)]
    ),
    "allow": lambda admin, user, resource, name, pattern, operation: admin.create_acls(
        [
            AclBinding(
                ResourceType[resource],
                name,
                ResourcePatternType[pattern],
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )
        ]
    ),
    "forbid": lambda admin, user: admin.delete_acls(
        [
            AclBindingFilter(
                ResourceType.ANY,
                None,
                ResourcePatternType.ANY,
                f"User:{user}",
                None,
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
        ]
    ),
    "delete_records": lambda admin, topic, partition, before: admin.delete_records(
        [TopicPartition(topic, partition, before)]
    ),
}


if __name__ == "__main__":
    main()
