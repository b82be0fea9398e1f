"""Spark's daemon that forks Python workers with imports already done.

Where it runs: a process of Spark's, on this machine: ``spark.python.daemon.module``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import traceback
from pathlib import Path

from wallaroo.processes.killed_workers import report_deaths
from wallaroo.processes.orphans import end_forks_with_this_process

NEEDED = ("pyspark.worker", "wallaroo.runtime.tasks.task", "wallaroo.spark.resident.generations")
ZIPPED = "/python/lib/pyspark.zip"


def leave_zipped_pyspark() -> None:
    """Import PySpark from its installed folder, without Spark's archive of the same modules.

    The archive holds no bytecode: Python compiles it again at each start, for half a second.
    """
    for entry in [entry for entry in sys.path if entry.endswith(ZIPPED)]:
        package = Path(entry.removesuffix(ZIPPED))
        if (package / "__init__.py").exists() and str(package.parent) in sys.path:
            sys.path.remove(entry)


def import_needed() -> None:
    """Import what workers of tasks need; keep it out of their garbage collections."""
    if sys.argv[1:2] != ["pyspark.worker"]:
        return  # a daemon of other workers
    for name in NEEDED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


class LastWords:
    """The last output of a forked worker that ends by an error.

    It replaces ``traceback`` in Spark's daemon.  Nothing is printed if Spark has hung up, as it
    does at the end of a run; errors of user code reach the driver another way.
    """

    @staticmethod
    def format_exc() -> str:
        """Return the traceback as text; "" if Spark has hung up."""
        is_hung_up = isinstance(sys.exc_info()[1], OSError | EOFError)
        return "" if is_hung_up else traceback.format_exc()

    @staticmethod
    def print_exc() -> None:
        """Print the traceback in one piece: several workers may end at once."""
        with contextlib.suppress(OSError):
            os.write(2, LastWords.format_exc().encode(errors="backslashreplace"))


def main() -> None:
    """Fork workers until Spark has no more use for them."""
    leave_zipped_pyspark()
    daemon = importlib.import_module("pyspark.daemon")
    vars(daemon)["traceback"] = LastWords
    import_needed()
    end_forks_with_this_process()
    report_deaths(daemon)
    daemon.manager()


if __name__ == "__main__":
    main()
