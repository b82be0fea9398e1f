"""Removal of a batch's shuffle files after the batch.

Spark removes them when the JVM's garbage collector finds the RDD gone, which may take minutes: at
25 MB of blocks a second, gigabytes.  There is no public call for it; if Spark's internals differ,
its own way is left to work.
"""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext


class ShuffleCleaner:
    """A cleaner of shuffle files.

    It has a thread of its own: the next batch need not wait.
    """

    def __init__(self, context: SparkContext):
        self._context = context
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wallaroo-shuffles")

    def forget(self, shuffled: list[Any]) -> Future[bool] | None:
        """Let Spark's cleaner know that the shuffles in front of these RDDs are over.

        The result is whether it understood.

        None, and nothing is done, after ``close``: the run is over, and the files are removed with
        the session.
        """
        return None if self._is_closed else self._thread.submit(self._forget, shuffled)

    def remove(self, folder: str) -> None:
        """Remove a folder of blocks, or leave it to the session's scratch folder."""
        if not self._is_closed:
            self._thread.submit(shutil.rmtree, folder, ignore_errors=True)

    def _forget(self, shuffled: list[Any]) -> bool:
        try:
            cleaner = self._context._jsc.sc().cleaner().get()
            for rdd in shuffled:
                cleaner.doCleanupShuffle(_shuffle_id(rdd), False)
        except (Py4JError, AttributeError, TypeError, OSError):
            return False
        return True

    def close(self) -> None:
        """Drop unfinished work."""
        self._is_closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)


def _shuffle_id(rdd: Any) -> int:
    """Return the id of the shuffle in front of an RDD, one step behind ``partitionBy``'s."""
    values = rdd._jrdd.rdd()
    shuffled = values.dependencies().head().rdd()
    return int(shuffled.dependencies().head().shuffleId())
