"""``wallaroo cluster``: a Spark cluster on this machine.

The cluster's processes outlive the command; other terminals find them through the folder.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wallaroo.cli.doctor.command import examine_java
from wallaroo.cli.doctor.machine import Verdict
from wallaroo.cli.terminal.formatting import print_table
from wallaroo.errors import PeerError
from wallaroo.network.reachability import PORT_MAX
from wallaroo.spark.local_cluster.cluster import LEAVE_S, MEMORY_DEFAULT, LocalCluster
from wallaroo.spark.local_cluster.hosts import MASTER_HOST
from wallaroo.spark.local_cluster.state import command, default_folder
from wallaroo.spark.local_cluster.status import ClusterStatus, ClusterWorker

WORKERS_DEFAULT = 2
WORKERS_MAX = 200
_MEMORY = re.compile(r"[1-9]\d*[mMgG]")
HOW = {
    "finished": "its executors finished what they had",
    "timed out": "its executors did not leave in time and were ended",
    "killed": "killed",
    "dead": "it was dead already",
}


# -- the command line


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "cluster",
        allow_abbrev=True,
        help="a Spark cluster on this machine, for trying things out",
        description=(
            "A Spark cluster on this machine: Spark's own master and workers, each worker "
            "with a loopback host of its own."
        ),
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_start(verbs)
    _add_add_worker(verbs)
    _add_remove_worker(verbs)
    _add_verb(
        verbs,
        "restart-master",
        "start a master again that died; workers and applications find it",
        restart_command,
    )
    status = _add_verb(verbs, "status", "what runs", status_command)
    status.add_argument("--json", action="store_true", help="as JSON")
    _add_verb(verbs, "stop", "stop the master and all workers", stop_command)


def _add_start(verbs: Any) -> None:
    verb = _add_verb(verbs, "start", "start a master and workers", start_command)
    verb.add_argument(
        "--workers",
        type=_workers,
        default=WORKERS_DEFAULT,
        metavar="N",
        help="(default: %(default)s)",
    )
    _add_sizes(verb, "this machine's, shared out among the workers", MEMORY_DEFAULT)
    verb.add_argument("--port", type=_port, default=0, help="the master's (default: any free one)")


def _add_add_worker(verbs: Any) -> None:
    verb = _add_verb(verbs, "add-worker", "start one more worker", add_command)
    verb.add_argument(
        "name", nargs="?", metavar="NAME", help="a dead worker to restart (default: a new one)"
    )
    _add_sizes(verb, "as at start", "as at start")


def _add_remove_worker(verbs: Any) -> None:
    verb = _add_verb(verbs, "remove-worker", "remove a worker", remove_command)
    verb.add_argument("name", nargs="?", metavar="NAME", help="which worker (default: the newest)")
    verb.add_argument(
        "--kill",
        action="store_true",
        help="SIGKILL for all its processes, as if its machine had failed for good",
    )
    verb.add_argument(
        "--timeout",
        type=_seconds,
        default=LEAVE_S,
        metavar="S",
        help="seconds that it has to finish its work (default: %(default)g)",
    )


def _add_verb(
    verbs: Any, name: str, what: str, handler: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=what)
    verb.add_argument(
        "--dir",
        type=Path,
        help="the cluster's folder (default: wallaroo/cluster in XDG_STATE_HOME or ~/.local/state)",
    )
    verb.set_defaults(handler=handler)
    return verb


def _add_sizes(verb: argparse.ArgumentParser, cores: str, memory: str) -> None:
    verb.add_argument(
        "--cores", type=_cores, metavar="N", help=f"cores of a worker (default: {cores})"
    )
    verb.add_argument(
        "--memory",
        type=_memory,
        metavar="M",
        help=f"memory that a worker has for executors (default: {memory})",
    )


def _between(text: str, least: int, most: int, what: str) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not {what}: {least} to {most}")
    return int(text)


def _workers(text: str) -> int:
    return _between(text, 0, WORKERS_MAX, "a number of workers")


def _cores(text: str) -> int:
    return _between(text, 1, 1024, "a number of cores")


def _port(text: str) -> int:
    return _between(text, 0, PORT_MAX, "a port")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return seconds


def _memory(text: str) -> str:
    if not _MEMORY.fullmatch(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a size of memory: 512m, 2g")
    return text.lower()


# -- the verbs


def _folder(options: argparse.Namespace) -> Path:
    return options.dir or default_folder()


def start_command(options: argparse.Namespace) -> None:
    """Start a cluster and print the commands to use next."""
    _need_java()
    begin = time.monotonic()
    cluster = LocalCluster.start(
        _folder(options),
        options.workers,
        options.cores,
        options.memory or MEMORY_DEFAULT,
        options.port,
    )
    took_s = time.monotonic() - begin
    status = cluster.status()
    print(f"Started {status.url}: {_workers_text(status)}, {took_s:.1f} s.")
    _say_if_hosts_are_shared(status)
    print(f"Next:  wallaroo run --master {status.url} APP")
    print(f"Look:  {command('status', cluster.folder).strip('`')}")
    print(f"End:   {command('stop', cluster.folder).strip('`')}")


def add_command(options: argparse.Namespace) -> None:
    """Add a worker, or restart a dead one."""
    _need_java()
    begin = time.monotonic()
    cluster = LocalCluster.attach(_folder(options))
    name = cluster.add_worker(options.name, options.cores, options.memory)
    status = cluster.status()
    print(
        f"{name} joined {status.url} after {time.monotonic() - begin:.1f} s, now "
        f"{_workers_text(status)}."
    )
    _say_if_hosts_are_shared(status)


def remove_command(options: argparse.Namespace) -> None:
    removal = LocalCluster.attach(_folder(options)).remove_worker(
        options.name, not options.kill, options.timeout
    )
    print(f"{removal.name} left after {removal.seconds:.1f} s: {HOW[removal.how]}.")


def restart_command(options: argparse.Namespace) -> None:
    _need_java()
    cluster = LocalCluster.attach(_folder(options))
    cluster.restart_master()
    print(f"{cluster.url} is running again, {_workers_text(cluster.status())}.")


def status_command(options: argparse.Namespace) -> None:
    """Show master, workers and applications."""
    cluster = LocalCluster.attach(_folder(options))
    status = cluster.status()
    if options.json:
        print(json.dumps(asdict(status), indent=2))
        return
    print(f"master        {status.url}, {status.state}, pid {status.pid}, {status.page}")
    print(f"applications  {_applications(status, cluster.folder)}")
    print(f"folder        {status.folder}\n")
    rows = (
        (
            worker.name,
            worker.host,
            str(worker.cores),
            worker.memory,
            worker.state,
            _executors(worker),
            str(worker.pid),
        )
        for worker in status.workers
    )
    print_table(("worker", "host", "cores", "memory", "state", "executors of", "pid"), rows)


def stop_command(options: argparse.Namespace) -> None:
    """Stop all of the cluster's processes."""
    cluster = LocalCluster(_folder(options))
    ended = cluster.stop()
    print(
        f"Ended {ended} processes. Logs stay in {cluster.folder} until the next start."
        if ended
        else "Nothing was running."
    )


# -- words


def _need_java() -> None:
    """Raise PeerError with the doctor's sentence if Spark would find no usable Java."""
    java = examine_java()
    if java.verdict is Verdict.FAIL:
        raise PeerError(f"Spark needs Java: {java.seen}. {java.fix}")


def _workers_text(status: ClusterStatus) -> str:
    alive = [worker for worker in status.workers if worker.state == "alive"]
    cores = sum(worker.cores for worker in alive)
    return f"{len(alive)} worker{'s' * (len(alive) != 1)} with {cores} core{'s' * (cores != 1)}"


def _say_if_hosts_are_shared(status: ClusterStatus) -> None:
    if any(worker.host == MASTER_HOST for worker in status.workers):
        print(
            f"Note:  {MASTER_HOST} is this system's only loopback address, so all workers are one "
            "host to Spark. On macOS, add one with: sudo ifconfig lo0 alias 127.0.0.2 up"
        )


def _applications(status: ClusterStatus, folder: Path) -> str:
    if status.applications is not None:
        return ", ".join(status.applications) or "none"
    if status.state == "dead":
        return f"unknown: the master is dead. {command('restart-master', folder)} starts it again"
    return "unknown: the master does not answer"


def _executors(worker: ClusterWorker) -> str:
    if worker.executors is None:
        return "unknown"
    return (
        ", ".join(
            f"{executor.application} ({executor.memory_mb} MiB)" for executor in worker.executors
        )
        or "-"
    )
