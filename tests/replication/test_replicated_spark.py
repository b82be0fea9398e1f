"""`wallaroo run` on Spark with a copy on a second host, and a receiver that resumes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.replication import replicated_driver
from tests.replication.hosts import HOST, Hosts
from wallaroo.spark.local_cluster.hosts import free_ports

APPLICATION = str(Path(replicated_driver.__file__))
EVENTS = 400


@pytest.mark.long
@pytest.mark.parametrize("host", ["resident", "micro-batch"])
def test_a_lost_host_loses_nothing(hosts: Hosts, host: str) -> None:
    """Each acknowledged event is counted once, and each count is received once."""
    (received,) = free_ports(1)
    out = f"{HOST}:{received}"
    receive = ["receive", "--listen", out, "--resume", "--out", str(hosts.out)]
    hosts.start(["-m", "wallaroo", *receive], "receiver")
    hosts.start_replica()

    def start(checkpoint: Path, *options: str) -> subprocess.Popen[bytes]:
        command = ["run", APPLICATION, "--master", "local[2]", "--host", host, "--no-live"]
        command += ["--checkpoint", str(checkpoint), "--acknowledged", f"in={hosts.port}"]
        command += ["--batch-time", "0.2", "--status", "off", "--out", out, *options]
        return hosts.start(["-m", "wallaroo", *command], "run")

    replica = f"{HOST}:{hosts.replica_port}", "--replica-key", str(hosts.copy / "replica.key")
    run = start(hosts.check, "--durability", "replicated", "--replica", *replica)
    with hosts.sending(EVENTS):
        hosts.until(lambda: hosts.acknowledged > EVENTS // 2)
        hosts.until(lambda: bool(hosts.output()))
        hosts.lose_first_host(run)
        second = start(hosts.copy, "--take-over")
    hosts.await_output(EVENTS)
    hosts.stop(second)
