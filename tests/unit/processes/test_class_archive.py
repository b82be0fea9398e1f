"""The archive of Spark's classes is used where it fits and is safe, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from wallaroo.processes.cds_archive import (
    archive_stem,
    find_archive,
    name_of_size,
    options_to_use,
)
from wallaroo.spark.jvm.settings import settings_of


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine with a Java, a Spark and a home."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"\n')
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "core.jar").write_bytes(b"1")
    home = {"HOME": str(tmp_path / "home"), "PATH": ""}
    return {
        **home,
        "JAVA_HOME": str(tmp_path / "java"),
        "SPARK_HOME": str(tmp_path / "spark"),
    }


@pytest.fixture
def archive(environment: dict[str, str]) -> Path:
    stem = archive_stem(environment)
    assert stem is not None
    stem.parent.mkdir(parents=True, mode=0o700)
    path = name_of_size(stem, 7)
    path.write_bytes(b"classes")
    path.chmod(0o400)
    return path


def test_an_archive_that_is_there_is_used_quietly(
    environment: dict[str, str], archive: Path
) -> None:
    options = options_to_use(environment, "-Xss2m")
    assert options.startswith(f"-XX:SharedArchiveFile={archive} ")
    assert "-Xlog:disable" in options


def test_without_an_archive_java_starts_as_ever(environment: dict[str, str]) -> None:
    assert options_to_use(environment, "") == ""
    assert options_to_use({"PATH": "", "HOME": "/nowhere"}, "") == ""
    assert archive_stem({**environment, "HOME": ""}) is None


@pytest.mark.parametrize(("host", "is_used"), [("127.0.0.1", True), ("elsewhere", False)])
def test_executors_of_this_host_use_it(
    environment: dict[str, str],
    archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    is_used: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    chosen = settings_of("App", f"spark://{host}:7077", tmp_path, "warning", ())
    assert (str(archive) in chosen["spark.executor.extraJavaOptions"]) is is_used


def test_the_users_own_archive_wins(environment: dict[str, str], archive: Path) -> None:
    assert options_to_use(environment, "-XX:SharedArchiveFile=/mine.jsa") == ""
    assert options_to_use(environment, "-Xshare:off") == ""


@pytest.mark.parametrize("change", ["jar", "java"])
def test_another_java_or_other_jars_need_another_archive(
    environment: dict[str, str], archive: Path, change: str
) -> None:
    if change == "jar":
        Path(environment["SPARK_HOME"], "jars", "core.jar").write_bytes(b"22")
    else:
        Path(environment["JAVA_HOME"], "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert options_to_use(environment, "") == ""


def test_an_archive_that_others_could_have_written_is_not_used(
    environment: dict[str, str], archive: Path
) -> None:
    archive.parent.chmod(0o777)
    assert options_to_use(environment, "") == ""
    archive.parent.chmod(0o700)
    moved = archive.rename(archive.with_suffix(".moved"))
    archive.symlink_to(moved)
    assert options_to_use(environment, "") == ""


def test_an_archive_that_was_cut_off_is_not_used(
    environment: dict[str, str], archive: Path
) -> None:
    archive.chmod(0o600)
    archive.write_bytes(b"cla")
    assert find_archive(environment) is None
    assert options_to_use(environment, "") == ""


def test_caches_may_be_elsewhere(environment: dict[str, str], tmp_path: Path) -> None:
    path = archive_stem({**environment, "XDG_CACHE_HOME": str(tmp_path / "caches")})
    assert path is not None
    assert path.parent == tmp_path / "caches" / "wallaroo-spark"
    assert os.path.basename(path).startswith("spark-classes-")
