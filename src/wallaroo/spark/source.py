"""The streaming source that Spark sees: its offsets are positions in the logs of all sources of an
application.

Where it runs: Spark's planner process.  It plans batches (how far to go in each source) and reads
nothing: the tasks of the batch read the logs themselves, so no byte of input passes through the
planner or the JVM on its way to user code.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from wallaroo.runtime.intake import plan_ends
from wallaroo.sources.log import from_stored, to_stored
from wallaroo.spark.control import read_control
from wallaroo.spark.heartbeat import HEARTBEAT, Heartbeat
from wallaroo.spark.planner_logs import LOGS, read_logs

FORMAT = "wallaroo"
STARTED = (
    # no source has this name: every query begins with a batch without events, so that the first one
    # with events is quick
    ""
)
# Spark asks a hundred times a second how far the next batch goes: an idle run would take several
# per cent of a core.  A look takes longer, the longer there has been nothing.
SLOWER = 0.02  # of that time
PAUSE_S_MAX = 0.1
UNSTARTED: dict[str, list[Any]] = {STARTED: [0, 0]}


class LogSource(DataSource):
    """Options: ``initial`` (JSON offsets), ``control`` (file; the logs are beside it)."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "source string, events long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return LogStreamReader(self.options)


class LogStreamReader(DataSourceStreamReader):
    """Plans ranges; see the module's head."""

    def __init__(self, options: Mapping[str, str]):
        self._initial: dict[str, Any] = json.loads(options["initial"])
        self._control = Path(options["control"])
        self._heartbeat = Heartbeat(self._control.with_name(HEARTBEAT))
        self._idle_since = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._heartbeat.beat()
        if start[STARTED] == UNSTARTED[STARTED]:
            return {**start, STARTED: [0, 1]}
        if read_control(self._control).is_held:
            self._idle_since = time.monotonic()
            return start
        found = self._latest(start)
        if found == start:
            time.sleep(min(SLOWER * (time.monotonic() - self._idle_since), PAUSE_S_MAX))
            return self._latest(start)
        self._idle_since = time.monotonic()
        return found

    def _latest(self, start: dict[str, Any]) -> dict[str, Any]:
        control = read_control(self._control)
        if control.is_held:
            return start
        logs = read_logs(self._control.with_name(LOGS))
        most = control.events_most
        ends = plan_ends(from_stored(start), logs, control.events_max, most, control.limits)
        return {**to_stored(ends), STARTED: [0, max(start[STARTED][1], control.wake)]}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        names = [name for name in self._initial if name != STARTED]
        return [InputPartition((name, end[name][1] - start[name][1])) for name in names]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """One row per source: its name and how many events the batch has of it (for people who look
        at the DataFrame).
        """
        yield partition.value

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: logs are released by the driver, after its own commit."""
