"""``wallaroo run --packages``: jars of a repository, here a folder, in the Spark of a source."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.sampling import sampled

pytestmark = [pytest.mark.spark, pytest.mark.java]
WAIT_S = 400.0
POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>
</project>
"""
IVY = """<ivysettings>
  <settings defaultResolver="folder"/>
  <resolvers><filesystem name="folder" m2compatible="true">
    <ivy pattern="{folder}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
    <artifact pattern="{folder}/[organisation]/[module]/[revision]/[module]-[revision].[ext]"/>
  </filesystem></resolvers>
</ivysettings>
"""
APPLICATION = """
import pathlib

import wallaroo
from wallaroo.sources import SparkSourceConfig

FOLDER = pathlib.Path(__file__).parent


def read(spark):
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    names = ["one", "two"]
    found = [name for name in names if loader.getResource(f"{name}.txt") is not None]
    return spark.createDataFrame([(name,) for name in found], "name string")


def application_setup(args):
    settings = {"spark.jars.ivySettings": str(FOLDER / "ivy.xml")}
    settings["spark.jars.ivy"] = str(FOLDER / "ivy")
    rows = SparkSourceConfig("rows", read, conf=settings)
    line = wallaroo.encoder(lambda row: row["name"] + "\\n")
    sink = wallaroo.FileSinkConfig(FOLDER / "out.txt", line)
    return wallaroo.build_application("rows", wallaroo.source("rows", rows).to_sink(sink))
"""


def publish(repository: Path, name: str) -> None:
    """Put a jar with one file into a repository of Maven's form."""
    folder = repository / "org" / "example" / name / "1.0"
    folder.mkdir(parents=True)
    (folder / f"{name}-1.0.pom").write_text(POM.format(name=name))
    with zipfile.ZipFile(folder / f"{name}-1.0.jar", "w") as jar:
        jar.writestr(f"{name}.txt", name)


@pytest.mark.parametrize(
    ("options", "wanted"),
    sampled(
        [(["--packages", "org.example:one:1.0,org.example:two:1.0"], ["one", "two"])],
        [(["--packages", "org.example:two:1.0"], ["two"])],
    ),
)
def test_packages_are_loaded_by_the_spark_of_a_source(
    tmp_path: Path, options: list[str], wanted: list[str]
) -> None:
    for name in ("one", "two"):
        publish(tmp_path / "repository", name)
    (tmp_path / "ivy.xml").write_text(IVY.format(folder=tmp_path / "repository"))
    (tmp_path / "application.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "wallaroo.cli.in_process", "--no-live", *options]
    done = subprocess.run(
        [*command, str(tmp_path / "application.py")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.txt").read_text().split() == wanted


def test_a_package_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "ivy.xml").write_text(IVY.format(folder=tmp_path / "repository"))
    (tmp_path / "application.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "wallaroo.cli.in_process", "--no-live"]
    command += ["--packages", "org.example:none:1.0", str(tmp_path / "application.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode != 0
    assert "org.example#none;1.0: not found" in done.stderr
    assert "Traceback" not in done.stderr
