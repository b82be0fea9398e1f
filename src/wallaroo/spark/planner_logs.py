"""The logs of a run's sources, for the planner that Spark runs in a process of its own.

Where it runs: driver writes, planner reads.  A private file: a log may hold the secrets of its
connection, which belong neither into Spark's options nor into its web interface.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from wallaroo.durable.whole_file import write_whole
from wallaroo.references import pickle_by_name
from wallaroo.sources.log import SourceLog

LOGS = "source-logs"  # the file's name, beside the control file


def write_logs(path: Path, logs: Mapping[str, SourceLog], module_paths: tuple[str, ...]) -> None:
    """Write the logs, and where Python finds the classes of those that users wrote."""
    content = pickle.dumps((module_paths, pickle_by_name(dict(logs))))
    write_whole(path, content, is_durable=False, points="spark.logs")


@cache
def read_logs(path: Path) -> dict[str, SourceLog]:
    """Return the logs, by source name; read once per process."""
    module_paths, packed = pickle.loads(path.read_bytes())
    sys.path[:0] = [folder for folder in module_paths if folder not in sys.path]
    logs: dict[str, SourceLog] = pickle.loads(packed)
    return logs
