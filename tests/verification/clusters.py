"""Verifications on clusters of this machine that change, and between which the network fails.

Where it runs: the verifier; the application's processes are its children.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.verification.namespaces import CLIENTS, Hosts
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
) -> Result:
    """Verify one application in ``folder`` on hosts between which the network fails.

    ``seconds`` are the shortest and the longest time of a failure.
    """
    output = folder / "output"
    say = reporter(is_quiet)
    with Hosts(workers) as hosts:

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
