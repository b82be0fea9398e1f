"""Checks for predictable failures, before Spark takes seconds to start."""

from __future__ import annotations

import contextlib
import difflib
import math
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wallaroo.dataflow.plan.model import Plan
from wallaroo.errors import PeerError, PipelineError, Problem
from wallaroo.network.reachability import why_unreachable
from wallaroo.options import HostKind, RunOptions
from wallaroo.sources.chain import ChainSourceConfig
from wallaroo.spark.jvm.settings import is_local
from wallaroo.spark.local_cluster.secrets import secret_of

MASTERS = "local[N], local[*], spark://HOST:PORT, yarn or k8s://URL"
WORKER_PYTHON = "PYSPARK_PYTHON"
WORKER_MODULES = ("lmdb", "cloudpickle")  # imported by workers in addition to Spark's own
PYTHON_SECONDS_MAX = 30.0
MASTER_S_MAX = 5.0  # for each address of a master to accept a connection
JAVA_MIN = 17  # required by Spark 4
INSTALL_JAVA = (
    "Install it (Debian: apt-get install openjdk-17-jre-headless; Fedora: dnf install "
    "java-17-openjdk-headless; macOS: brew install openjdk@17)"
)
_JAVA_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_MASTER = re.compile(
    r"local(\[([1-9]\d*|\*)(,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]|spark://[^/\s]+:\d+(,[^/\s]+:\d+)*"
    r"|yarn|k8s://\S+"
)


def check_before_spark(plan: Plan, options: RunOptions, *, has_session: bool = False) -> None:
    """Raise PipelineError or PeerError for anything that would fail once Spark runs."""
    _check_acknowledged(plan, options.ack_ports)
    _check_speed(plan, options.speed)
    _check_rate_limit(plan, options)
    if has_session:
        return
    check_master(options.master)
    _check_min_workers(options)
    _check_replicas(options)
    if options.master.startswith("spark://"):
        check_reachable(options.master)
    check_user(os.getuid())
    check_java(os.environ)
    check_spark_home(os.environ)
    if options.master.startswith("local"):
        check_worker_python(os.environ)


def with_host(options: RunOptions, session: Any) -> RunOptions:
    """Return options with the host that suits a run of its own, or one in a session."""
    return options.on(is_shared=session is not None and not is_local(session.sparkContext.master))


def check_master(master: str) -> None:
    """Raise PipelineError if Spark knows no such master.

    >>> check_master("local[2,4]"), check_master("spark://one:7077,two:7077")
    (None, None)
    """
    if _MASTER.fullmatch(master):
        return
    word = re.split(r"[\[:]", master)[0]
    near = difflib.get_close_matches(word, ("local", "spark", "yarn", "k8s"), 1)
    shown = {"local": "local[*]", "spark": "spark://HOST:PORT", "k8s": "k8s://URL"}
    hint = f" Did you mean {shown.get(near[0], near[0])}?" if near else ""
    what = f"'{master}' is not a master of Spark.{hint}"
    raise PipelineError(Problem("--master", "", what, f"Give {MASTERS}."))


def _check_min_workers(options: RunOptions) -> None:
    """Raise PipelineError if a run on one machine would wait for other hosts."""
    if options.min_workers > 1 and is_local(options.master):
        what = f"{options.min_workers} workers were asked for, and {options.master} is one process."
        fix = "Leave it out, or give the --master of a cluster."
        raise PipelineError(Problem("--min-workers", "", what, fix))


def _check_replicas(options: RunOptions) -> None:
    """Raise PipelineError if there can be no copies of state on other hosts."""
    if not options.replicas:
        return
    if options.replicas != 1:
        fix = "Give 1, or leave it out."
        raise PipelineError(
            Problem("--replicas", "", f"must be 0 or 1, got {options.replicas}.", fix)
        )
    if is_local(options.master):
        what = f"copies on other workers were asked for, and {options.master} is one process."
        fix = "Leave it out, or give the --master of a cluster."
        raise PipelineError(Problem("--replicas", "", what, fix))
    if options.host == HostKind.MICRO_BATCH:
        what = "copies are kept by resident tasks, and the micro-batch host has none."
        fix = "Give --host resident (or --latency below half a second), or leave it out."
        raise PipelineError(Problem("--replicas", "", what, fix))


def check_reachable(master: str, within_s: float = MASTER_S_MAX) -> None:
    """Raise PeerError if none of a standalone master's addresses accepts a connection."""
    causes = why_unreachable(master.removeprefix("spark://").split(","), within_s)
    if causes:
        start = "start one: `wallaroo cluster start` does so on this machine"
        if secret_of(master):  # a cluster that was not stopped
            start = (
                "start that one again: `wallaroo cluster restart-master` (and its --dir, if any)"
            )
        raise PeerError(
            f"no master of Spark answers at {master} ({causes}). Is it running? Correct --master, "
            f"or {start}."
        )


def check_user(number: int) -> None:
    """Raise PeerError if a user has no name, without which Hadoop's login in the JVM fails."""
    try:
        pwd.getpwuid(number)
    except KeyError as error:
        raise PeerError(
            f"the user with the number {number} has no name, which Spark needs. Add it to "
            "/etc/passwd, or run as a user with a name."
        ) from error


def check_java(environment: Mapping[str, str]) -> None:
    """Raise PeerError if no Java can be found, or one that is too old.

    JAVA_HOME wins over PATH, as for Spark.
    """
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else "java"
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None and home:
        raise PeerError(
            f"JAVA_HOME is {home}, which holds no bin/java. Point it to a Java 17 or newer, or "
            "unset it to use the java on PATH."
        )
    if path is None:
        raise PeerError(
            f"Spark needs Java 17 or newer, and there is none on PATH. {INSTALL_JAVA} or "
            "set JAVA_HOME to one."
        )
    major = java_major_in(Path(path).resolve())
    if major is not None and major < JAVA_MIN:
        origin = "that JAVA_HOME names" if home else "on PATH"
        raise PeerError(
            f"Java {major} found at {path}, {origin}; 17 or newer is needed. Set "
            f"JAVA_HOME to one. {INSTALL_JAVA}."
        )


def check_spark_home(environment: Mapping[str, str]) -> None:
    """Raise PeerError if SPARK_HOME is set, perhaps for a Spark that was removed, and has none."""
    home = environment.get("SPARK_HOME")
    if home is not None and not Path(home, "bin", "spark-submit").is_file():
        raise PeerError(
            f"SPARK_HOME is {home!r}, which holds no bin/spark-submit. Unset it to use the Spark "
            "of pyspark, or point it to a Spark."
        )


def java_major_in(program: Path) -> int | None:
    """Return a Java's major version from its file ``release``; None without it.

    Every Java since 7 has that file; to start it and ask would take a tenth of a second.
    """
    for home in program.parents[1:3]:  # Java 8: jre/bin/java, below the folder of the JDK
        with contextlib.suppress(OSError):
            version = _JAVA_VERSION.search((home / "release").read_text(errors="replace"))
            if version is not None:
                return int(version[1])
    return None


def check_worker_python(environment: Mapping[str, str]) -> None:
    """Raise PeerError if the environment names a Python for the workers that they cannot use.

    It does not start, lacks modules, or is of another version than this one: pickled code cannot be
    moved between versions.
    """
    variable = WORKER_PYTHON
    program = environment.get(variable, "")
    if program in ("", sys.executable):
        return
    path = shutil.which(program, path=environment.get("PATH"))
    if path is None:
        raise PeerError(
            f"{variable} is {program}, and there is no such program. {_use_this_python(variable)}"
        )
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    theirs, *missing = _version_and_missing(path)
    if theirs != ours:
        what = f"is Python {theirs}" if theirs else "does not start"
        raise PeerError(
            f"{variable} is {program}, which {what}; this is Python {ours}. Workers must have the "
            f"same version. {_use_this_python(variable)}"
        )
    if missing:
        raise PeerError(
            f"{variable} is {program}, which has no {' and no '.join(missing)}. Run `{program} -m "
            f"pip install {' '.join(missing)}`. Otherwise: {_use_this_python(variable)}"
        )


def _use_this_python(variable: str) -> str:
    return f"Run `unset {variable}`, or set it to {sys.executable}."


def _version_and_missing(program: str) -> list[str]:
    """Return a program's version of Python, with the modules that workers need but it lacks.

    The version of a Python 3.11 is ``3.11``; ``[""]`` is a program that does not start.
    """
    code = (
        "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2], "
        f"*[name for name in {WORKER_MODULES!r} if u.find_spec(name) is None])"
    )
    try:
        done = subprocess.run(
            [program, "-c", code],
            capture_output=True,
            text=True,
            timeout=PYTHON_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return [""]
    words = done.stdout.split()
    return words if done.returncode == 0 and words else [""]


def _check_speed(plan: Plan, speed: float | None) -> None:
    if speed is None:
        return
    title = f"application '{plan.application}'"
    if not (speed > 0 and math.isfinite(speed)):
        what = f"speed={speed!r} is not a speed."
        raise PipelineError(Problem(title, "", what, "Give a number above 0: 10 is 10x."))
    timeless = [name for name, how in plan.source_times if how.is_receipt]
    if timeless:
        names = " and ".join(f"'{name}'" for name in timeless)
        what = f"Input cannot be replayed by event time: source {names} has none."
        fix = "Add .with_event_time(...) after wallaroo.source(...), or run without a speed."
        raise PipelineError(Problem(title, "", what, fix))


def _check_rate_limit(plan: Plan, options: RunOptions) -> None:
    per_s = options.rate_limit
    if per_s is None:
        return
    title = f"application '{plan.application}'"
    if not (per_s > 0 and math.isfinite(per_s)):
        what = f"rate_limit={per_s!r} is not a rate."
        raise PipelineError(Problem(title, "", what, "Give events a second, above 0."))
    if options.speed is not None:
        what = "rate_limit= and speed= both bound how fast input is read."
        raise PipelineError(Problem(title, "", what, "Give one of them."))
    if not any(isinstance(source.config, ChainSourceConfig) for source in plan.sources):
        what = "rate_limit= bounds the first part of a chain, and no source is one."
        fix = "Read it with wallaroo.chain(...), or leave the limit out."
        raise PipelineError(Problem(title, "", what, fix))


def _check_acknowledged(plan: Plan, ack_ports: tuple[tuple[str, int], ...]) -> None:
    names = [
        source.config.name
        for source in plan.sources
        if (at := source.config.listening) is not None and at.can_acknowledge
    ]
    for name, port in ack_ports:
        if name not in names:
            listed = ", ".join(f"'{listed}'" for listed in names) or "none"
            near = difflib.get_close_matches(name, names, 1)
            hint = f"Write --acknowledged {near[0] if near else 'NAME'}={port}."
            raise PipelineError(
                Problem(
                    f"--acknowledged {name}={port}",
                    "",
                    f"there is no TCP source '{name}'; this application's TCP sources: {listed}.",
                    hint if names else "Only TCP sources acknowledge.",
                )
            )
