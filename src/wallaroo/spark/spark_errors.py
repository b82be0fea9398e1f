"""Spark's errors, in one sentence each.

Where it runs: driver.
"""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_VERSIONS = re.compile(
    r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)", re.DOTALL
)
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_CAUSE = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


def reason_of(error: BaseException) -> str:
    """Return why a task could not run on its host, with the fix if one is known.

    >>> reason_of(RuntimeError("gone"))
    'RuntimeError: gone'
    """
    text = (
        str(error.java_exception)
        if isinstance(error, Py4JJavaError)
        else f"{type(error).__name__}: {error}"
    )
    if found := _MISSING.search(text):
        return (
            f"its Python has no module named {found[1]!r}. Install wallaroo-spark's dependencies "
            "(and the application's) on every host, or ship them: docs/scaling.md, 'Dependencies'."
        )
    if found := _VERSIONS.search(text):
        return (
            f"its Python is {found[1]}, the driver's is {found[2]}. Install the same version "
            "there, or name it with the environment variable PYSPARK_PYTHON."
        )
    if found := _NO_PYTHON.search(text):
        return (
            f"it has no program {found[1]}. Name its Python with the environment variable "
            f"PYSPARK_PYTHON."
        )
    causes = _CAUSE.findall(text)
    return (
        f"{causes[-1][0]}: {causes[-1][1]}"[:500] if causes else text.strip().split("\n")[0][:500]
    )
