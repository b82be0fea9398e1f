"""``wallaroo doctor --faster-start``: the archive of Spark's classes.

A JVM that ran a small application on each kind of host writes it, under another name until
complete: the resident host alone would not load Spark SQL.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import psutil

import wallaroo
from wallaroo.durable.folders import make_private
from wallaroo.errors import PeerError
from wallaroo.options import HostName
from wallaroo.processes.cds_archive import archive_stem, find_archive, name_of_size
from wallaroo.spark.jvm.jvm import wait_for_exit

MAKING = "-XX:ArchiveClassesAtExit="
RUN_S = 600.0
WRITE_S = 600.0  # about 3 s on a quiet machine
MIB = 1024 * 1024
HOSTS: tuple[HostName, ...] = ("micro-batch", "resident")
KEPT = 4  # archives: one for each installation on this machine that is in use


class WordCount:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.key_extractor
def word(text: str) -> str:
    return text


@wallaroo.state_computation(state=WordCount)
def count(text: str, state: WordCount) -> str:
    """Count a word."""
    state.count += 1
    return f"{text} {state.count}\n"


@wallaroo.encoder
def encode(text: str) -> bytes:
    return text.encode()


def small_application(folder: Path) -> wallaroo.Application:
    """Return an application that loads what runs do: a source, a shuffle, state and a sink."""
    words = folder / "words.txt"
    words.write_text("a\nb\na\n", encoding="utf-8")
    counts = (
        wallaroo.source("words", wallaroo.FileSourceConfig("words", str(words)))
        .key_by(word)
        .to(count)
        .to_sink(wallaroo.FileSinkConfig(str(folder / "counts.txt"), encode))
    )
    return wallaroo.build_application("faster start", counts)


def make_archive() -> str:
    """Create the archive unless it exists; return a sentence about it.  Raises PeerError."""
    stem = archive_stem(os.environ)
    if stem is None:
        raise PeerError(
            "cannot create the archive: Java, PySpark or a home directory is missing. Run "
            "`wallaroo doctor`."
        )
    there = find_archive(os.environ)
    if there is not None:
        return f"{there} already exists."
    try:
        make_private(stem.parent)
    except OSError as error:
        raise PeerError(
            f"cannot create the folder of the archive, {stem.parent}: {error.strerror}. Set "
            "XDG_CACHE_HOME to a folder of yours."
        ) from error
    begun = time.monotonic()
    unfinished = stem.with_name(f".{stem.name}.{os.getpid()}")
    try:
        _run_and_write(unfinished)
        if not unfinished.exists():
            raise PeerError("this Java writes no archive of classes; starts stay as they are.")
        path = name_of_size(stem, unfinished.stat().st_size)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    forget_old(path.parent)
    size = path.stat().st_size / MIB
    return f"{path}, {size:.0f} MiB, created in {time.monotonic() - begun:.0f} s."


def _run_and_write(target: Path) -> None:
    option = ("spark.driver.extraJavaOptions", f"{MAKING}{target} -Xlog:disable")
    for host in HOSTS:  # the JVM stays from one to the next
        with tempfile.TemporaryDirectory(prefix="wallaroo-") as folder:
            application = small_application(Path(folder))
            with wallaroo.run(
                application, master="local[2]", host=host, spark_conf=(option,), status_address=None
            ) as run:
                run.wait(RUN_S)
    wait_for_exit(WRITE_S)


def forget_old(folder: Path) -> None:
    """Remove all archives but the newest ``KEPT`` and killed processes' unfinished files."""
    by_age = sorted(folder.glob("spark-classes-*.jsa"), key=lambda path: path.stat().st_mtime_ns)
    for path in by_age[:-KEPT]:
        path.unlink(missing_ok=True)
    for path in folder.glob(".spark-classes-*"):
        writer = path.name.rpartition(".")[2]
        if writer.isdigit() and not psutil.pid_exists(int(writer)):
            path.unlink(missing_ok=True)
