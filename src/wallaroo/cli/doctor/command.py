"""``wallaroo doctor``: a check that this machine can run applications.

It changes nothing: the file written to measure a disk is removed again.
"""

from __future__ import annotations

import argparse
import os
import platform
import pwd
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from wallaroo.cli.doctor.machine import (
    NEEDED,
    Finding,
    Verdict,
    cgroup_cores,
    java_major,
    judge_cores,
    judge_disk,
    judge_files,
    judge_java,
    judge_memory,
    judge_package,
    judge_python,
    memory_available,
    parse_ports,
)
from wallaroo.durable.folders import is_store_url
from wallaroo.errors import PeerError
from wallaroo.processes.cds_archive import find_archive
from wallaroo.processes.open_files import files_allowed
from wallaroo.spark.jvm.preflight import WORKER_PYTHON, check_user, check_worker_python
from wallaroo.state.store.objects import CloudObjects
from wallaroo.state.store.store_log import StoreLog
from wallaroo.state.store.stored_checkpoint import checkpoint_folder

PORTS_DEFAULT = (7010, 7002)  # the ports of the examples
FSYNC_TRIES = 15
JAVA_SECONDS_MAX = 30.0
LOOPBACK_SECONDS_MAX = 5.0


# -- the command


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check that this machine can run applications",
        description=(
            "Check Java, Python, packages, ports, disk, cores and memory. Ends with 1 if "
            "anything fails."
        ),
    )
    parser.add_argument(
        "--ports",
        type=_ports,
        metavar="7010,7002",
        help="ports that must be free (default: those of the examples, as a warning)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR|URL",
        help="where checkpoints will be kept (default: the temporary directory)",
    )
    parser.add_argument(
        "--faster-start",
        action="store_const",
        dest="handler",
        const=start_faster,
        help="archive Spark's classes (150 MiB in ~/.cache/wallaroo-spark): later starts take half "
        "of the processor time",
    )
    parser.set_defaults(handler=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Print a line for each finding; return 1 if anything fails, else 0."""
    is_ok = True
    for finding in examine(options.ports, options.checkpoint or tempfile.gettempdir()):
        print(finding, flush=True)
        is_ok = is_ok and finding.verdict is not Verdict.FAIL
    print(
        "This machine can run applications."
        if is_ok
        else "Fix what failed, then run wallaroo doctor again."
    )
    return 0 if is_ok else 1


def start_faster(options: argparse.Namespace) -> int:
    """Create the archive of Spark's classes; return 0."""
    from wallaroo.cli.doctor.faster_start import make_archive

    print(make_archive())
    return 0


def examine(ports: tuple[int, ...] | None, checkpoint: str) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    yield examine_user(os.getuid())
    yield examine_java()
    yield examine_archive()
    yield judge_python(sys.version_info[:2], f"{platform.python_version()}, {sys.executable}")
    yield examine_worker_python(os.environ)
    for package, least in NEEDED.items():
        yield judge_package(package, installed_version(package), least)
    yield judge_cores(cores())
    yield judge_memory(free_memory())
    yield judge_files(files_allowed())
    yield examine_loopback()
    yield examine_host_name()
    for port in PORTS_DEFAULT if ports is None else ports:
        yield examine_port(port, Verdict.WARN if ports is None else Verdict.FAIL)
    yield examine_disk(checkpoint_folder(checkpoint))
    if is_store_url(checkpoint):
        yield examine_store(checkpoint)


def _ports(text: str) -> tuple[int, ...]:
    try:
        return parse_ports(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# -- Java and Python


def examine_user(number: int) -> Finding:
    """Look for the name of the user that runs this."""
    try:
        check_user(number)
    except PeerError as error:
        what, _, fix = str(error).partition(". ")
        return Finding("user", Verdict.FAIL, what, fix)
    return Finding("user", Verdict.OK, pwd.getpwuid(number).pw_name)


def examine_java() -> Finding:
    """Start the Java that Spark would start (JAVA_HOME before PATH) and read its version."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    origin = "from JAVA_HOME" if home else "on PATH"
    if program is None:
        return judge_java(None, "not on PATH, and JAVA_HOME is not set")
    try:
        done = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return judge_java(None, f"{program} ({origin}) does not start: {error}")
    return judge_java(java_major(done.stderr + done.stdout), f"{program} ({origin})")


def examine_archive() -> Finding:
    """Check whether the archive of Spark's classes exists."""
    thing = "fast start"
    path = find_archive(os.environ)
    if path is not None:
        return Finding(thing, Verdict.OK, f"classes of Spark in {path}")
    fix = "Create it once, so that runs start faster: wallaroo doctor --faster-start"
    return Finding(thing, Verdict.WARN, "there is no archive of Spark's classes", fix)


def examine_worker_python(environment: Mapping[str, str]) -> Finding:
    """Examine the Python that Spark would start its workers with."""
    thing = "workers"
    program = environment.get(WORKER_PYTHON, "")
    try:
        check_worker_python(environment)
    except PeerError as error:
        what, _, fix = str(error).partition(". ")
        return Finding(thing, Verdict.FAIL, what, fix)
    return Finding(thing, Verdict.OK, f"{program} (PYSPARK_PYTHON)" if program else "the same")


def installed_version(package: str) -> str | None:
    """Return the installed version without importing the package, None if it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# -- cores and memory


def cores() -> float:
    """Return the number of cores for this process, by its affinity and a container's limit."""
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    limit = cgroup_cores(_text("/sys/fs/cgroup/cpu.max"))
    return min(float(allowed), limit) if limit else float(allowed)


def free_memory() -> int | None:
    """Return the available bytes of machine and container, None if unknown."""
    available = memory_available(_text("/proc/meminfo"))
    limit = _text("/sys/fs/cgroup/memory.max").strip()
    used = _text("/sys/fs/cgroup/memory.current").strip()
    if limit.isdecimal() and used.isdecimal():
        left = max(0, int(limit) - int(used))
        return left if available is None else min(available, left)
    return available


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


# -- network


def examine_loopback() -> Finding:
    """Send a byte over 127.0.0.1 to this process."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(LOOPBACK_SECONDS_MAX)
            with socket.create_connection(server.getsockname(), LOOPBACK_SECONDS_MAX) as client:
                accepted, _ = server.accept()
                with accepted:
                    accepted.settimeout(LOOPBACK_SECONDS_MAX)
                    client.sendall(b"w")
                    accepted.recv(1)
    except OSError as error:
        fix = "Bring it up (ip link set lo up), or correct the firewall's rules."
        return Finding("loopback", Verdict.FAIL, f"127.0.0.1 does not work: {error}", fix)
    return Finding("loopback", Verdict.OK, "127.0.0.1")


def examine_host_name() -> Finding:
    """Resolve this machine's own name, as Spark does when it starts."""
    name = socket.gethostname()
    try:
        return Finding("host name", Verdict.OK, f"{name} is {socket.gethostbyname(name)}")
    except OSError:
        fix = f"Add '127.0.0.1 {name}' to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1."
        return Finding("host name", Verdict.WARN, f"{name} has no address", fix)


def examine_port(port: int, if_busy: Verdict) -> Finding:
    """Try to listen on a port of 127.0.0.1; ``if_busy`` is the verdict if that fails."""
    thing = f"port {port}"
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except PermissionError:
        return Finding(thing, if_busy, "needs special rights", "Choose a port above 1023.")
    except OSError as error:
        fix = (
            f"Right if a sink's receiver is running. Otherwise end what listens there (ss -ltnp "
            f"'sport = :{port}')."
        )
        return Finding(thing, if_busy, error.strerror or str(error), fix)
    return Finding(thing, Verdict.OK, "free")


# -- disk


def examine_disk(checkpoint: Path) -> Finding:
    """Measure free space and fsync in the checkpoint's directory, or else in its parent."""
    directory = checkpoint.absolute()
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        free = shutil.disk_usage(directory).free
        fsync_ms = measure_fsync_ms(directory)
    except OSError as error:
        fix = "Make it writable, or name another directory with --checkpoint DIR."
        return Finding("disk", Verdict.FAIL, f"{checkpoint}: {error.strerror or error}", fix)
    return judge_disk(str(checkpoint), free, fsync_ms)


def examine_store(url: str) -> Finding:
    """Create, read and delete an object of a checkpoint's object store, and try its conditions."""
    began = time.perf_counter()
    try:
        StoreLog(CloudObjects(url)).probe()
    except PeerError as error:
        what, _, fix = str(error).partition(". ")
        return Finding("object store", Verdict.FAIL, what, fix)
    took_ms = (time.perf_counter() - began) * 1e3
    return Finding("object store", Verdict.OK, f"{url} keeps conditions ({took_ms:.0f} ms)")


def measure_fsync_ms(directory: Path) -> float:
    """Return the median milliseconds to write and fsync 4 KiB, in a temporary file."""
    took = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(FSYNC_TRIES):
            begin = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            took.append((time.perf_counter() - begin) * 1000)
    return statistics.median(took)
