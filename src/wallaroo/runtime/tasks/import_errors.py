"""Errors of an application's modules that a worker cannot import.

Where it runs: worker.
"""

from __future__ import annotations

from wallaroo.errors import PeerError
from wallaroo.user_code.user_frames import user_frames
from wallaroo.user_code.worker_mark import UNDER_MAIN
from wallaroo.user_code.worker_modules.edited import is_installed

DEPENDENCIES = "Install what it imports on every host, or ship it: docs/scaling.md, 'Dependencies'."
NOT_SHIPPED = (
    "Workers have neither this shell's environment (--conf spark.executorEnv.NAME=VALUE) nor its "
    "working folder: docs/scaling.md, 'What is shipped automatically'."
)
IMPORTED_HERE = f"Workers import it, too. {UNDER_MAIN}"
IN_WORKER = "CONTEXT_ONLY_VALID_ON_DRIVER"  # PySpark's name for a session in a worker


def import_error(error: Exception, host: str, is_local: bool) -> PeerError | None:
    """Return the error to report, with the application's line; None if it is not an import's.

    ``is_local``: whether the worker is on the driver's machine.
    """
    files = [(frame.filename, frame.lineno) for frame in user_frames(error.__traceback__)]
    lines = [
        f"{file}:{line}: " for file, line in files if not (file[:1] == "<" or is_installed(file))
    ]
    cause = f"{type(error).__name__}: {error}".rstrip(".")
    if isinstance(error, ImportError) or (isinstance(error, AttributeError) and not lines):
        fix = DEPENDENCIES
    elif not lines:
        return None
    elif IN_WORKER in cause:
        cause = "a SparkSession was opened while a worker imported this module"
        fix = UNDER_MAIN
    else:
        fix = IMPORTED_HERE if is_local else NOT_SHIPPED
    place = lines[-1] if lines else ""
    return PeerError(f"the application cannot be imported on host '{host}': {place}{cause}. {fix}")
