"""Parsers and verdicts for the doctor's findings on a machine.

Where it runs: pure.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import Enum

from wallaroo.network.reachability import PORT_MAX
from wallaroo.spark.jvm.preflight import JAVA_MIN

PYTHON_MIN = (3, 11)
NEEDED = {
    "pyspark": (4, 3),
    "pyarrow": (18,),
    "numpy": (2,),
    "lmdb": (1, 4),
    "msgspec": (0, 19),
    "cloudpickle": (3,),
    "rich": (13,),
    "psutil": (7, 2, 2),
    "prometheus-client": (0, 22),
    "shtab": (1, 7),
}
GIB = 1024**3
# bytes free; the backlog of one source may fill the former within minutes
DISK_FAIL = GIB // 4
DISK_WARN = 2 * GIB
MEMORY_WARN = 2 * GIB  # with --host micro-batch, the JVM takes 1.2 GiB of it
FILES_FAIL = 400  # Java with Spark's classes needs more than 256
FILES_WARN = 4096  # each connection and each open file of the state takes one
FSYNC_WARN_MS = 20.0  # a batch waits for several syncs
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


class Verdict(Enum):
    """Result of one check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    It has the subject, the verdict, the observation and the fix.
    """

    thing: str
    verdict: Verdict
    seen: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.verdict.value:<4}  {self.thing:<12} {self.seen}"
        return f"{line}\n      {'':<12} -> {self.fix}" if self.fix else line


def java_major(output: str) -> int | None:
    """Return the major version in the output of ``java -version``, None if there is none.

    >>> java_major('Picked up _JAVA_OPTIONS: -Xmx1g\\nopenjdk version "17.0.15" 2025-04-15')
    17
    >>> java_major('java version "1.8.0_371"')
    8
    """
    found = _JAVA_VERSION.search(output)
    return int(found.group(1)) if found else None


def version_tuple(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version.

    >>> version_tuple("4.3.0.dev1")
    (4, 3, 0)
    """
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def memory_available(meminfo: str) -> int | None:
    """Return the bytes available without swapping, by the text of /proc/meminfo.

    >>> memory_available("MemTotal: 8 kB\\nMemAvailable:   4 kB\\n")
    4096
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def cgroup_cores(cpu_max: str) -> float | None:
    """Return the cores a container may use, by cgroup's cpu.max; None if it has no limit.

    >>> cgroup_cores("150000 100000"), cgroup_cores("max 100000")
    (1.5, None)
    """
    words = cpu_max.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def parse_ports(text: str) -> tuple[int, ...]:
    """Return the ports in a list such as ``7010,7002``; ValueError names what is not a port.

    >>> parse_ports("7010, 7002")
    (7010, 7002)
    """
    ports = []
    for word in (part.strip() for part in text.split(",") if part.strip()):
        if not word.isdecimal() or not 0 < int(word) <= PORT_MAX:
            raise ValueError(f"'{word}' is not a port: 1 to {PORT_MAX}, separated by commas")
        ports.append(int(word))
    return tuple(ports)


def judged(
    thing: str, is_ok: bool, seen: str, fix: str, otherwise: Verdict = Verdict.FAIL
) -> Finding:
    """Return a finding that is ok, or has the verdict ``otherwise`` and a fix."""
    return Finding(thing, Verdict.OK, seen) if is_ok else Finding(thing, otherwise, seen, fix)


def judge_java(major: int | None, where: str) -> Finding:
    """Judge a Java by its major version, None if none could be started."""
    fix = (
        f"Install Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless) "
        f"or set JAVA_HOME to one."
    )
    seen = where if major is None else f"{major}, {where}"
    return judged("java", major is not None and major >= JAVA_MIN, seen, fix)


def judge_python(version: tuple[int, ...], text: str) -> Finding:
    """Judge an interpreter by its version; ``text`` identifies it."""
    fix = "Install Python 3.11 or newer and make the environment again."
    return judged("python", version >= PYTHON_MIN, text, fix)


def judge_package(package: str, version: str | None, least: tuple[int, ...]) -> Finding:
    """Judge a version: of Spark's two numbers must match, others must be new enough."""
    wanted = ".".join(map(str, least))
    fix = (
        f'Run: pip install "{package}{f"=={wanted}.*" if package == "pyspark" else f">={wanted}"}"'
    )
    if version is None:
        return Finding(package, Verdict.FAIL, "is not installed", fix)
    found = version_tuple(version)
    is_ok = found[:2] == least if package == "pyspark" else found >= least
    return judged(package, is_ok, version, fix)


def judge_cores(count: float) -> Finding:
    fix = "It runs, slowly: Spark and Python share it. Give it two or more."
    return judged("cores", count >= 2, f"{count:g}", fix, Verdict.WARN)


def judge_memory(available: int | None) -> Finding:
    """Judge the free memory, in bytes."""
    if available is None:
        return Finding("memory", Verdict.OK, "the system does not report how much is free")
    fix = f"Close other programs: {MEMORY_WARN / GIB:.0f} GiB are comfortable."
    seen = f"{available / GIB:.1f} GiB free"
    return judged("memory", available >= MEMORY_WARN, seen, fix, Verdict.WARN)


def judge_files(allowed: int) -> Finding:
    """Judge how many files a process may have open, connections included."""
    fix = "Raise the limit: ulimit -n 65536, LimitNOFILE= of systemd."
    if allowed < FILES_FAIL:
        return Finding("open files", Verdict.FAIL, f"{allowed:,}: Java does not start", fix)
    seen = f"{allowed:,}" if allowed < sys.maxsize else "no limit"
    return judged("open files", allowed >= FILES_WARN, seen, fix, Verdict.WARN)


def judge_disk(where: str, free: int, fsync_ms: float) -> Finding:
    """Judge free bytes and fsync's median in milliseconds."""
    seen = f"{where}: {free / GIB:.1f} GiB free, fsync {fsync_ms:.2g} ms"
    if free < DISK_FAIL:
        fix = "Free some space, or name another disk with --checkpoint DIR."
        return Finding("disk", Verdict.FAIL, seen, fix)
    if free < DISK_WARN:
        fix = "A backlog may fill it: free some space, or name another disk."
        return Finding("disk", Verdict.WARN, seen, fix)
    fix = "Every batch waits for fsync: keep the checkpoint on a faster disk."
    return judged("disk", fsync_ms <= FSYNC_WARN_MS, seen, fix, Verdict.WARN)
