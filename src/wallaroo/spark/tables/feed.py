"""Feed of a DataFrame, a stream or a table, read by Spark.

Where it runs: feeder processes, each with a JVM of its own.

The invariants:

* A batch is known by Spark's query and batch number.  The position to resume from names both, and
  how many of the batch's frames are stored; a batch that Spark repeats after a crash is recognized
  by its number, and continues after the frames that are stored, or is skipped.
* Spark learns that a batch is done only when all its frames are on disk in the spool, and its own
  notes of the batch are on disk before the batch is staged.  So no batch is skipped by either side.
* A position of another query than the one in Spark's notes is refused.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wallaroo.connectors.spark.source import SparkSourceConfig
from wallaroo.connectors.spark.staging import StagedBatch, sync_file
from wallaroo.durable.folders import make_private
from wallaroo.durable.scratch import make_scratch
from wallaroo.errors import PeerError, WallarooError
from wallaroo.network.urls import redacted
from wallaroo.sources.failures import failure_of
from wallaroo.sources.feed import FrameRun
from wallaroo.spark.jvm.jvm import Jvm, is_jvm_gone
from wallaroo.spark.jvm.settings import BOTH_COMPILERS, DRIVER_OPTIONS, put_in_front
from wallaroo.spark.session.host_session import open_context, session_in

WAIT_S = 0.1  # for a batch, before the feed returns to its process
RETRY_S = 1.0
TABLE = "table"  # instead of a query's id
WHOLE = -1  # frames of a batch that is stored completely
SETTINGS = {
    "spark.driver.memory": "512m",
    # Arrow reads Spark's older form of times slowly
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SparkPosition:
    """The stored frames.

    Those of all batches before ``batch``, and ``done`` of its own.
    """

    query: str = ""
    batch: int = -1
    done: int = WHOLE

    def to_bytes(self) -> bytes:
        return json.dumps([self.query, self.batch, self.done]).encode()

    @staticmethod
    def of(resume: bytes) -> SparkPosition:
        """Undo `to_bytes`; nothing is the beginning."""
        return SparkPosition(*json.loads(resume)) if resume else SparkPosition()

    def has(self, batch: int) -> bool:
        """Return whether a batch is stored to its end."""
        return batch < self.batch or (batch == self.batch and self.done == WHOLE)


@dataclass(frozen=True, slots=True)
class Stage:
    """The folder of Spark's notes and of staged rows."""

    folder: Path
    is_durable: bool


class SparkFeed:
    """The feed, fed by a thread in which Spark reads."""

    def __init__(self, config: SparkSourceConfig[Any], resume: bytes):
        self._config = config
        self._position = SparkPosition.of(resume)
        self._stage: Stage  # set by `stage_in`
        self._thread: threading.Thread | None = None
        self._state = threading.Condition()
        self._batch: StagedBatch | None = None  # the one that the feed passes on
        self._frames: Iterator[list[bytes]] | None = None
        self._run: list[bytes] = []  # the following ones
        self._is_reading = False  # Spark has begun to read
        self._is_ended = False
        self._problem = ""
        self._failure: WallarooError | None = None

    def stage_in(self, folder: Path, is_durable: bool) -> None:
        """Keep Spark's notes and staged rows in a folder that lives as long as the spool."""
        self._stage = Stage(folder, is_durable)

    def next_run(self) -> FrameRun | None:
        """Return the next frames; ``None`` at the end of a table.

        Raises UserCodeError if the user's reader raises, PeerError if Spark cannot read.
        """
        if self._thread is None:
            self._begin()
        with self._state:
            self._state.wait_for(
                lambda: self._batch is not None or self._is_ended or self._failure is not None,
                WAIT_S,
            )
            if self._failure is not None:
                raise self._failure
            batch = self._batch
            if batch is None:
                return None if self._is_ended else self._nothing()
        return self._run_of(batch)

    @property
    def _has_end(self) -> bool:
        return self._config.until_now or self._position.query == TABLE

    def _nothing(self) -> FrameRun:
        return FrameRun(
            b"",
            0,
            self._position.to_bytes(),
            problem=self._problem,
            is_away=not self._is_reading,
            # what has an end is not over before it ends, however long Spark stages rows
            is_caught_up=False if self._has_end else None,
        )

    def _run_of(self, batch: StagedBatch) -> FrameRun:
        """Return the batch's next frames; the batch is done once the last ones are stored."""
        position = self._position
        done = max(0, position.done) if position.batch == batch.number else 0
        if self._frames is None:
            self._frames = batch.frames(self._config.form, done)
            self._run = next(self._frames, [])
        run = self._run
        self._run = next(self._frames, [])
        is_last = not self._run
        done = WHOLE if is_last else done + len(run)
        self._position = SparkPosition(position.query, batch.number, done)
        stored = partial(self._done, batch) if is_last else None
        if stored is not None and not run:
            stored()
        return FrameRun(b"".join(run), len(run), self._position.to_bytes(), stored=stored)

    def _done(self, batch: StagedBatch) -> None:
        """Let Spark continue: all frames of its batch are stored."""
        batch.remove()
        with self._state:
            self._batch = None
            self._frames = None
            self._state.notify_all()

    # -- Spark's thread ---------------------------------------------------------------------------

    def _begin(self) -> None:
        make_private(self._stage.folder, is_durable=self._stage.is_durable)
        self._thread = threading.Thread(
            target=self._read, name="wallaroo-spark-source", daemon=True
        )
        self._thread.start()

    def _read(self) -> None:
        try:
            self._read_to_end()
        except Exception as error:  # noqa: BLE001  # the thread's error boundary: else the feed would wait forever
            if is_jvm_gone():  # also if it seemed to be the user's reader that failed
                self._begin_again()
            if not isinstance(error, WallarooError):
                error = self._error(f"Spark cannot read: {self._sentence(error)}")
            self._fail(error)

    def _begin_again(self) -> None:
        """End this process, which the parent restarts with a JVM of its own."""
        _log.warning("source '%s': Spark's JVM has gone: begun again", self._config.name)
        os.kill(os.getpid(), signal.SIGKILL)

    def _fail(self, error: WallarooError) -> None:
        with self._state:
            self._failure = error
            self._state.notify_all()

    def _read_to_end(self) -> None:
        session = self._open()
        frame = self._frame(session)
        if frame.isStreaming:
            self._read_stream(session, frame)
        else:
            self._adopt(TABLE)
            self._is_reading = True
            self._hand_over(frame, 0)
        with self._state:
            self._is_ended = True
            self._state.notify_all()

    def _open(self) -> SparkSession:
        config = self._config
        scratch = make_scratch().path  # the next run removes it if this process is killed
        settings = tuple(settings_with(config.conf).items())
        jvm = Jvm()
        name = f"source {config.name}"
        try:
            return session_in(open_context(name, config.master, scratch, "error", settings, jvm))
        except PeerError:
            if jvm.killed_by:
                self._begin_again()
            raise

    def _frame(self, session: SparkSession) -> DataFrame:
        reader = self._config.reader.function  # type: ignore[attr-defined]
        try:
            frame = reader(session)
        except (PySparkException, Py4JError) as error:
            raise self._error(
                f"Spark cannot do what its reader asks for: {self._sentence(error)}"
            ) from None
        except Exception as error:  # noqa: BLE001  # the boundary to the user's reader
            raise failure_of(self._config.name, error, "none: its reader was called") from None
        if not isinstance(frame, DataFrame):
            raise self._error(f"its reader returned {type(frame).__name__}, not a DataFrame")
        return frame

    def _read_stream(self, session: SparkSession, frame: DataFrame) -> None:
        """Run the query; restart it after a failure of Spark, once it has begun."""
        while True:
            query = self._start(frame)
            try:
                query.awaitTermination()
                if self._config.until_now:
                    return
                self._problem = "Spark has stopped the query; retrying"
            except Exception as error:  # Spark's errors have no common base
                if self._failure is not None or not self._is_reading or is_jvm_gone():
                    raise
                # the cause is known for a batch: Spark names a callback that raised
                self._problem = self._problem or self._problem_of(error)
            threading.Event().wait(RETRY_S)
            frame = self._frame(session)

    def _start(self, frame: DataFrame) -> StreamingQuery:
        every = f"{self._config.every_s} seconds"
        writer = frame.writeStream.foreachBatch(self._hand_over_batch)
        writer = writer.option("checkpointLocation", self._notes.as_uri())
        if self._config.until_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=every).start()

    @property
    def _notes(self) -> Path:
        """Return the folder of Spark's checkpoint of the query."""
        return self._stage.folder / "query"

    def _hand_over_batch(self, frame: DataFrame, number: int) -> None:
        """Stage one batch of the query, and wait until it is stored; Spark's entry point."""
        try:
            self._adopt(json.loads((self._notes / "metadata").read_text(encoding="utf-8"))["id"])
            self._is_reading = True
            if self._stage.is_durable:
                self._sync_notes(number)
            self._hand_over(frame, number)
        except WallarooError as error:
            self._fail(error)
            raise
        except Exception as error:
            self._problem = self._problem_of(error)
            raise

    def _adopt(self, query: str) -> None:
        """Compare the query with the one that the position names."""
        position = self._position
        if not position.query:
            self._position = SparkPosition(query)
        elif position.query != query:
            raise self._error(
                f"Spark's notes in {self._notes} are not those of the query that was read until "
                f"now ({position.query}). Restore them with the checkpoint that they belong to; or "
                f"begin again, with another name of the source or another --checkpoint folder"
            )

    def _hand_over(self, frame: DataFrame, number: int) -> None:
        if self._position.has(number):
            return
        batch = StagedBatch(self._stage.folder, number, self._stage.is_durable)
        batch.write(frame)
        self._problem = ""
        with self._state:
            self._batch = batch
            self._state.notify_all()
            self._state.wait_for(lambda: self._batch is None or self._failure is not None)
            if self._failure is not None:
                raise self._failure

    def _sync_notes(self, number: int) -> None:
        """Make Spark's notes of a batch survive a power cut, which Spark does not ensure."""
        for path in (self._notes / "metadata", *self._notes.rglob(str(number))):
            if path.is_file():
                sync_file(path)

    def _error(self, what: str) -> PeerError:
        return PeerError(f"Source '{self._config.name}': {what}.")

    def _problem_of(self, error: Exception) -> str:
        return f"Spark cannot read: {self._sentence(error)}; retrying"

    def _sentence(self, error: Exception) -> str:
        """Return the first line of Spark's report, without the JVM's stack and secrets."""
        text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        line = redacted(text.strip().split("\n")[0], self._config.conf)
        return line.rstrip(". ")[:500] or type(error).__name__


def settings_with(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the JVM that reads, ``conf`` over ours.

    >>> settings_with({"spark.driver.extraJavaOptions": "-Xss2m"})["spark.driver.extraJavaOptions"]
    '-XX:TieredStopAtLevel=4 -Xss2m'
    """
    settings = {**SETTINGS, **conf}
    put_in_front(settings, DRIVER_OPTIONS, BOTH_COMPILERS)
    return settings


def open_feed(config: SparkSourceConfig[Any], resume: bytes) -> SparkFeed:
    return SparkFeed(config, resume)
