"""Class-data-sharing archive of Spark, which halves the work of a JVM's start.

Where it runs: driver, and ``wallaroo doctor --faster-start``, which creates the archive.

Java can write the classes that a process loaded, parsed and verified, to a file that later
processes map (class data sharing).  The file fits one Java and one set of jars: both are part of
its name, Java checks them again, and if anything differs it silently starts without the archive.  A
file that another user could have written is not used, as a JVM runs its content.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from wallaroo.processes.environment import spark_home

# a mismatch is expected: without this Java prints it on stdout
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
OPTIONS_OF_ARCHIVES = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")


def find_archive(environment: Mapping[str, str]) -> Path | None:
    """Return the archive for this Java and this Spark; None if none is complete and safe."""
    try:
        unsized = archive_stem(environment)
        if unsized is None:
            return None
        found = unsized.parent.glob(f"{unsized.name}-*.jsa")
        return next((path for path in sorted(found) if is_whole(path) and is_safe(path)), None)
    except OSError:
        return None


def name_of_size(stem: Path, size: int) -> Path:
    """Return the archive's name with its size: Java does not survive a truncated one."""
    return stem.with_name(f"{stem.name}-{size}.jsa")


def is_whole(path: Path) -> bool:
    """Return whether an archive has the size in its name."""
    return path.stem.endswith(f"-{path.stat().st_size}")


def archive_stem(environment: Mapping[str, str]) -> Path | None:
    """Return the archive's path for this Java and Spark, without its size, or None."""
    java = _java(environment)
    home = spark_home(environment)
    jars = home / "jars" if home is not None and (home / "jars").is_dir() else None
    folder = _folder(environment)
    if java is None or jars is None or folder is None:
        return None
    key = hashlib.sha256()
    for fact in _facts(java, jars):
        key.update(fact.encode() + b"\n")
    return folder / f"spark-classes-{key.hexdigest()[:16]}"


def options_to_use(environment: Mapping[str, str], given: str) -> str:
    """Return Java's options to use an archive, if any and unless ``given`` has such."""
    if any(name in given for name in OPTIONS_OF_ARCHIVES):
        return ""
    path = find_archive(environment)
    if path is None:
        return ""
    # options are split at blanks and quotes
    is_plain = not any(sign in str(path) for sign in " \t'\"\\")
    return f"-XX:SharedArchiveFile={path} {QUIET}" if is_plain else ""


def is_safe(path: Path) -> bool:
    """Return whether only this user or root can have written ``path``."""
    owners = (os.geteuid(), 0)
    try:
        status = path.lstat()
        folder = path.parent.stat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid in owners
        and folder.st_uid in owners
        and not (status.st_mode | folder.st_mode) & others
    )


def _facts(java: Path, jars: Path) -> Iterator[str]:
    yield str(java)
    release = java.parent.parent / "release"
    if release.exists():
        yield release.read_text(encoding="utf-8", errors="replace")
    yield str(jars)
    for entry in sorted(os.scandir(jars), key=lambda entry: entry.name):
        found = entry.stat()
        yield f"{entry.name} {found.st_size} {int(found.st_mtime)}"


def _java(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else None
    found = shutil.which(program or "java", path=environment.get("PATH"))
    return Path(found).resolve() if found else None


def _folder(environment: Mapping[str, str]) -> Path | None:
    caches = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(caches):
        return Path(caches, "wallaroo-spark")
    home = environment.get("HOME", "")
    return Path(home, ".cache", "wallaroo-spark") if os.path.isabs(home) else None
