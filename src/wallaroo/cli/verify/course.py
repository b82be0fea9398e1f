"""The course of ``wallaroo verify``: receivers, clusters and hosts around a verification.

Where it runs: a terminal; the application's processes are its children.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from wallaroo.cli.receive.receiver import Receiver
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.local_cluster import LocalCluster
from wallaroo.verify.disturbances.namespaces import CLIENTS, Hosts
from wallaroo.verify.disturbances.partitions import CUT_S, Partitions
from wallaroo.verify.disturbances.scaling import Changes
from wallaroo.verify.harness import Verification
from wallaroo.verify.ledger import Faults
from wallaroo.verify.options import VerifyOptions
from wallaroo.verify.plain_receiver import PlainReceiver
from wallaroo.verify.processes import Kind
from wallaroo.verify.result import Result
from wallaroo.verify.undisturbed import Observed, compare

ON_CLUSTER = ("--conf", "spark.executor.memory=512m")  # several executors on one machine
CONNECT_S_MAX = 300.0  # how long a sender waits for a run that restarts


def verify(
    options: VerifyOptions, folder: Path, is_quiet: bool = False, behaviour: str = ""
) -> Result:
    """Verify one application in ``folder``; a ``behaviour`` selects a plain receiver."""
    output = folder / "output"
    with (
        output.open("wb") as out,
        PlainReceiver(out, behaviour)
        if behaviour
        else Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
    ):
        verification = Verification(
            options, folder, receiver, output, _send, _nothing if is_quiet else _say
        )
        result = verification.run()
        out.flush()
    if isinstance(verification.case, Observed):
        _compare_with_undisturbed(options, folder, verification, result, is_quiet)
    return result


def _compare_with_undisturbed(
    options: VerifyOptions,
    folder: Path,
    disturbed: Verification,
    result: Result,
    is_quiet: bool,
) -> None:
    """Run the application again with the same input and without faults.

    Differences of outputs and states are added to the result.
    """
    apart = folder / "undisturbed"
    apart.mkdir()
    plain = replace(options, kills=0, faults=(), events=disturbed.sent, is_plain=False)
    output = apart / "output"
    with (
        output.open("wb") as out,
        PlainReceiver(out, "silent")
        if options.is_plain
        else Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
    ):
        say = _nothing if is_quiet else _say
        say("running it again with the same input and without faults")
        reference = Verification(plain, apart, receiver, output, _send, say)
        ended = reference.run().ended_by_itself
        out.flush()
    result.ended_by_itself += [f"without faults: {end}" for end in ended]
    found = disturbed.case
    expected = reference.case
    assert isinstance(found, Observed)
    assert isinstance(expected, Observed)
    differences = Faults()
    compare(found, expected, differences)
    if options.is_plain:  # at least once
        result.repeated = differences.duplicated
        differences.duplicated = 0
    result.faults.add(differences)


def verify_scaling(
    options: VerifyOptions,
    folder: Path,
    changes: tuple[str, ...],
    workers: int,
    is_quiet: bool = False,
    cores: int = 1,
) -> Result:
    """Verify one application in ``folder`` on a cluster that changes.

    Workers have ``cores`` cores each.
    """
    output = folder / "output"
    say = _nothing if is_quiet else _say
    with (
        output.open("wb") as out,
        Receiver(out=out, is_keeping=False, is_resuming=True) as receiver,
        LocalCluster.start(folder / "cluster", workers, cores=cores) as cluster,
    ):
        on_cluster = ("--master", cluster.url, *ON_CLUSTER, "--batch-time", "0.5")
        chosen = replace(options, kinds=(Kind.WORKER, Kind.DRIVER), run_options=on_cluster)
        verification = Verification(
            chosen,
            folder,
            receiver,
            output,
            _send,
            say,
            lambda course: Changes(course, cluster, changes),
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
    say = _nothing if is_quiet else _say
    with Hosts(workers) as hosts:

        def receiver() -> Receiver:
            host = hosts.address(CLIENTS)
            return Receiver(host, out=out, is_keeping=False, is_resuming=True)

        def send(port: int, stream: str, payloads: list[bytes], rate: float) -> None:
            with hosts.entered(CLIENTS):
                _send(port, stream, payloads, rate, hosts.master_host)

        with (
            output.open("wb") as out,
            hosts.called_on(CLIENTS, receiver) as inbox,
            LocalCluster.start(folder / "cluster", workers, cores=1, places=hosts) as cluster,
        ):
            here = hosts.master_host
            addresses = ("spark.driver.host", "spark.driver.bindAddress")
            on_hosts = tuple(part for name in addresses for part in ("--conf", f"{name}={here}"))
            on_cluster = ("--master", cluster.url, *ON_CLUSTER, *on_hosts, "--batch-time", "0.5")
            chosen = replace(options, host=here, run_options=on_cluster)
            verification = Verification(
                chosen,
                folder,
                inbox,
                output,
                send,
                say,
                lambda course: Partitions(course, hosts, seconds),
            )
            result = verification.run()
            out.flush()
    return result


def _send(
    port: int, stream: str, payloads: list[bytes], rate: float, host: str = "127.0.0.1"
) -> None:
    send_acknowledged(
        (host, port),
        stream,
        of_payloads(payloads),
        connect_timeout_s=CONNECT_S_MAX,
        rate=rate,
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _nothing(text: str) -> None:
    """Print nothing."""
