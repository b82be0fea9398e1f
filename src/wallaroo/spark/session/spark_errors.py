"""One-sentence errors of Spark and its JVM."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from wallaroo.errors import PeerError, WallarooError
from wallaroo.runtime.batch.batch_loop import explain
from wallaroo.spark.jvm.jvm import is_jvm_gone, jvm_ended_by
from wallaroo.spark.jvm.settings import is_local

# errors of a call into a JVM that has ended, or through a context that was stopped, which has none
GONE = (Py4JError, ConnectionError, EOFError, AttributeError)
# errors of a task; with a session, PySpark raises those of Python in the worker as its own
TASK_FAILED = (Py4JJavaError, PySparkException)
SESSION_STOPPED = (
    "the SparkSession that this run uses was stopped by this program. What was committed stays: "
    "run again with another session to continue from there. To end a run before its session, call "
    "its stop() and wait()."
)
STOPPED = (
    "Spark has stopped. Its master removes an application after 10 executors that could not start "
    "(a wrong JAVA_HOME or SPARK_HOME on a worker, say); the reason is in the logs of the master "
    "and, below work/, of its workers. What was committed stays: correct it there, then run the "
    "same command again."
)
ENDED_BY = (
    "A function of the application ends them, or the system does for lack of memory (see its log)"
)
CRASHED = "Python worker exited unexpectedly"  # Spark's message
# messages of calls into a stopped context
_CONTEXT_STOPPED = re.compile(r"stopped SparkContext|SparkContext was shut down|driverTmpDir")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_VERSIONS = re.compile(
    r"Python in worker has different version: ([\d.]+) than that in driver: ([\d.]+)", re.DOTALL
)
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
_CAUSE = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_LAST_FAILURE = re.compile(r"most recent failure: .*? executor \w+\): (?:\w+\.)*(\w+: .+)")
# in which the JVM of an executor stores blocks
_FOLDER = re.compile(r"^\w*(?:File|AccessDenied)\w*Exception: (/.*?/blockmgr-[^/]+|/.*)")
# only the working folder has no name in such an error
_NO_WORKING_FOLDER = re.compile(r"^FileNotFoundError: .*No such file or directory$", re.MULTILINE)
RESTORE = "Restore it, or restart Spark's worker there."


def text_of(error: BaseException) -> str:
    """Return the text of an error."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception)
    return f"{type(error).__name__}: {error}"


def reason_of(error: BaseException) -> str:
    """Return why a task could not run on its host, with the fix if one is known.

    >>> reason_of(RuntimeError("gone"))
    'RuntimeError: gone'
    """
    text = text_of(error)
    if CRASHED in text:
        return f"its worker processes end. {ENDED_BY}."
    if match := _MISSING.search(text):
        return (
            f"its Python has no module named {match[1]!r}. Install wallaroo-spark's dependencies "
            "(and the application's) on every host, or ship them: docs/scaling.md, 'Dependencies'."
        )
    if match := _VERSIONS.search(text):
        return (
            f"its Python is {match[1]}, the driver's is {match[2]}. Install the same version "
            "there, or name it with the environment variable PYSPARK_PYTHON."
        )
    if match := _NO_PYTHON.search(text):
        return (
            f"it has no program {match[1]}. Name its Python with the environment variable "
            f"PYSPARK_PYTHON."
        )
    if _NO_WORKING_FOLDER.search(text):
        return f"the working folder of its Spark executor was removed. {RESTORE}"
    if match := _LAST_FAILURE.search(text):
        folder = _FOLDER.match(match[1])
        return f"it cannot use its folder {folder[1]}. {RESTORE}" if folder else match[1][:500]
    causes = _CAUSE.findall(text)
    return (
        f"{causes[-1][0]}: {causes[-1][1]}"[:500] if causes else text.strip().split("\n")[0][:500]
    )


def crashed(batch: int, times: int, cause: str = "") -> PeerError:
    """Return the error of a batch whose worker processes ended at each attempt.

    ``cause`` is Spark's reason, if it has one.
    """
    why = f"Spark's reason: {cause.rstrip('.')}" if cause else ENDED_BY
    return PeerError(
        f"batch {batch} ended its worker processes {times} times. {why}. What was committed "
        "stays: run again to continue from there."
    )


def jvm_gone() -> PeerError:
    """Return the error of a run whose JVM has ended."""
    what = "Spark's JVM has gone"
    if number := jvm_ended_by():
        what = (
            f"Spark's JVM was killed (signal {number}), by a user or by the system for lack of "
            "memory (see its log)"
        )
    return PeerError(
        f"{what}. What was committed stays: run the same command again to continue from there."
    )


def loss_of(context: SparkContext) -> PeerError | None:
    """Return the error of a run whose context was stopped, or whose JVM has ended, if so."""
    running = context._jsc  # None once ``stop`` has returned
    try:
        if running is not None and not running.sc().isStopped():
            return None
    except GONE:
        return jvm_gone()
    is_by_program = context._jsc is None or is_local(str(context.master))
    return PeerError(SESSION_STOPPED if is_by_program else STOPPED)


def failure_of(
    query: StreamingQuery | None, failure: BaseException | None, context: SparkContext | None = None
) -> WallarooError:
    """Return the error that ended a query, in user's words; ``failure``: a batch's.

    If ``context`` was stopped, other errors follow from that.
    """
    if isinstance(failure, WallarooError):
        return failure
    if context is not None and (loss := loss_of(context)) is not None:
        return loss
    is_of_calls = isinstance(failure, (Py4JError, PySparkException))
    # a JVM that died a moment ago seems to have no classes
    if isinstance(failure, Py4JNetworkError | ConnectionError) or (is_of_calls and is_jvm_gone()):
        return jvm_gone()
    if failure is not None and not is_of_calls:
        return explain(failure)
    try:
        reason = failure or (query.exception() if query else None)
    except GONE:
        return jvm_gone()
    text = "no reason given"
    if reason is not None and _CONTEXT_STOPPED.search(text_of(reason)):
        return PeerError(STOPPED)
    if isinstance(reason, TASK_FAILED):
        text = reason_of(reason)
    elif reason is not None:
        text = str(reason).strip().split("\n")[0][:500]
    return PeerError(
        f"Spark ended the run: {text.rstrip('.')}. What was committed stays; run again to continue "
        "from there."
    )
