"""`wallaroo run` on Spark, on a cluster too, whose workers read the ranges of an ingress."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.ingresses import joined_driver
from tests.ingresses.hosts import OWN, Ingresses
from tests.replication.hosts import HOST
from wallaroo.spark.local_cluster import LocalCluster

EVENTS = 400


@pytest.mark.long
@pytest.mark.parametrize(
    ("host", "workers"), [("resident", 2), ("micro-batch", 0), ("resident", 0)]
)
def test_an_ingress_is_lost_and_comes_back(hosts: Ingresses, host: str, workers: int) -> None:
    """Tasks continue without it, and take the rest when it is back; the run is restarted, too."""
    with ExitStack() as stack:
        master = "local[2]"
        if workers:
            cluster = LocalCluster.start(hosts.folder / "cluster", workers, cores=1)
            master = stack.enter_context(cluster).status().url
        lose_and_restart(hosts, host, master)


def lose_and_restart(hosts: Ingresses, host: str, master: str) -> None:
    def start() -> None:
        command = ["run", str(Path(joined_driver.__file__)), "--master", master, "--no-live"]
        command += ["--host", host, "--checkpoint", str(hosts.check), "--batch-time", "0.2"]
        command += ["--ingress-listen", f"{HOST}:{hosts.join_port}", "--status", "off"]
        command += ["--acknowledged", f"in={hosts.own_port}", "--folder", str(hosts.folder)]
        hosts.start(["-m", "wallaroo", *command], "run")

    start()
    edge = hosts.joined("edge")
    senders = hosts.send_to(OWN, EVENTS), hosts.send_to("edge", EVENTS, rate=100)
    hosts.until(lambda: len(hosts.lines_of("edge")) > EVENTS // 8)
    hosts.kill(edge)
    senders[0].join()
    hosts.await_streams(own=EVENTS)
    hosts.start_ingress("edge")
    hosts.until(lambda: len(hosts.lines_of("edge")) > EVENTS // 2)
    run = next(process for process in hosts.running() if "run" in process.args)
    hosts.kill(run)
    start()
    senders[1].join()
    hosts.await_streams(own=EVENTS, edge=EVENTS)
