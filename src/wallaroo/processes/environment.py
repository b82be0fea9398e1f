"""The environment of a child that runs this package.

Where it runs: every process that starts such a child.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

PACKAGE_ROOT = Path(__file__).parents[1]
# For Java programs that compute little: the small collector and the fast compiler halve their
# start-up time and save 30 MB each (docs/cluster.md).
SMALL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"  # variable: arguments that PySpark passes to spark-submit


def python_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment, extended so that Python finds this very package first."""
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **changes}


def spark_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return SPARK_HOME or the folder of pyspark, which is not imported; None if neither is there.

    >>> spark_home({"SPARK_HOME": "/opt/spark"})
    PosixPath('/opt/spark')
    """
    home = environment.get("SPARK_HOME")
    if home is not None:
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def submit_arguments() -> str:
    """Return the options that every JVM of PySpark is started with."""
    return os.environ.get(SUBMIT_ARGUMENTS, "pyspark-shell")


def load_packages(coordinates: str) -> None:
    """Make every JVM that this process and its children start load packages, like spark-submit."""
    packages = f"--packages {shlex.quote(coordinates)}"
    os.environ[SUBMIT_ARGUMENTS] = f"{packages} {submit_arguments()}"
