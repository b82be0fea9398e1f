"""Verifications on clusters of this machine that change, and between which the network fails.

Where it runs: the verifier; the application's processes are its children.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tests.connectors.files.s3.server import S3Server, environment_of, running_s3
from tests.verification.namespaces import CLIENTS, STORE, Hosts
from tests.verification.partitions import CUT_S, Partitions
from tests.verification.scaling import Changes
from wallaroo.cli.receive.receiver import Receiver
from wallaroo.cli.verify.session import reporter, send
from wallaroo.spark.local_cluster import LocalCluster
from wallaroo.testing.verify.harness import Verification
from wallaroo.testing.verify.options import VerifyOptions
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.result import Result

ROOT = Path(__file__).resolve().parents[2]
# several executors on one machine, which import the applications from this checkout
ON_CLUSTER = (
    *("--conf", "spark.executor.memory=512m"),
    *("--conf", f"spark.executorEnv.PYTHONPATH={ROOT / 'src'}:{ROOT}"),
)


def verify_scaling(
    options: VerifyOptions,
    folder: Path,
    changes: tuple[str, ...],
    workers: int,
    is_quiet: bool = False,
    cores: int = 1,
    replicas: int = 0,
) -> Result:
    """Verify one application in ``folder`` on a cluster that changes.

    Workers have ``cores`` cores each; ``replicas`` as in `wallaroo run`.
    """
    output = folder / "output"
    say = reporter(is_quiet)
    with (
        output.open("wb") as out,
        Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
        LocalCluster.start(folder / "cluster", workers, cores=cores) as cluster,
    ):
        on_cluster = ("--master", cluster.url, *ON_CLUSTER, "--batch-time", "0.5")
        if replicas:
            on_cluster += ("--replicas", str(replicas))
        kinds = (Kind.WORKER, Kind.DRIVER, Kind.INGRESS, Kind.EGRESS)
        chosen = replace(options, kinds=kinds, run_options=on_cluster)
        verification = Verification(
            chosen,
            folder,
            receiver,
            output,
            send,
            say,
            lambda injection: Changes(injection, cluster, changes),
        )
        result = verification.run()
        out.flush()
    return result


def verify_partitions(
    options: VerifyOptions,
    folder: Path,
    workers: int,
    is_quiet: bool = False,
    seconds: tuple[float, float] = CUT_S,
    is_stored: bool = False,
) -> Result:
    """Verify one application in ``folder`` on hosts between which the network fails.

    ``seconds`` are the shortest and the longest time of a failure.  If ``is_stored``, the
    checkpoint is in an object store on a host of its own, and no two hosts share a folder.
    """
    output = folder / "output"
    say = reporter(is_quiet)
    cache = folder / "cache" if is_stored else None
    with ExitStack() as stack:
        if cache is not None:
            cache.mkdir()
        hosts = stack.enter_context(Hosts(workers, cache))
        if cache is not None:
            server = stack.enter_context(_store(hosts, folder / "s3"))
            os.environ.update(environment_of(server.port, cache, server.host))
            options = replace(options, checkpoint="s3://bucket/verified")

        def receiver() -> Receiver:
            host = hosts.address(CLIENTS)
            return Receiver(host, out=out, is_keeping=False, is_resuming=True)

        def send_from_clients(port: int, stream: str, payloads: list[bytes], rate: float) -> None:
            with hosts.entered(CLIENTS):
                send(port, stream, payloads, rate, hosts.master_host)

        with (
            output.open("wb") as out,
            hosts.called_on(CLIENTS, receiver) as inbox,
            LocalCluster.start(folder / "cluster", workers, cores=1, places=hosts) as cluster,
        ):
            here = hosts.master_host
            addresses = ("spark.driver.host", "spark.driver.bindAddress")
            on_hosts = tuple(part for name in addresses for part in ("--conf", f"{name}={here}"))
            on_cluster = ("--master", cluster.url, *ON_CLUSTER, *on_hosts, "--batch-time", "0.5")
            chosen = replace(options, address=here, run_options=on_cluster)
            verification = Verification(
                chosen,
                folder,
                inbox,
                output,
                send_from_clients,
                say,
                lambda injection: Partitions(injection, hosts, seconds),
            )
            result = verification.run()
            out.flush()
    return result


@contextmanager
def _store(hosts: Hosts, folder: Path) -> Iterator[S3Server]:
    """Run an object store on its host."""
    (folder / "data" / "bucket").mkdir(parents=True)
    with ExitStack() as stack:
        with hosts.entered(STORE):
            server = stack.enter_context(running_s3(folder, hosts.address(STORE)))
        yield server
