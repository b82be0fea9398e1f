"""The streaming source that Spark sees: its offsets are positions in the spools of all sources of
an application.

Where it runs: Spark's planner process.  It plans batches (how far to go in each source) and reads
nothing: the tasks of the batch read the spools themselves, so no byte of input passes through the
planner or the JVM on its way to user code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from wallaroo.runtime.intake import Offsets, plan_offsets
from wallaroo.spark.control import read_control
from wallaroo.spark.pulse import PULSE, Pulse
from wallaroo.spool.format import folder_of
from wallaroo.spool.reader import SpoolReader

FORMAT = "wallaroo"
STARTED = (
    # no source has this name: every query begins with a batch without events, so that the first one
    # with events is quick
    ""
)
UNSTARTED: Offsets = {STARTED: [0, 0]}


class SpoolSource(DataSource):
    """Options: ``spool`` (folder), ``sources`` (JSON list of names), ``initial`` (JSON offsets),
    ``control`` (file).
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "source string, events long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return SpoolStreamReader(self.options)


class SpoolStreamReader(DataSourceStreamReader):
    """Plans ranges; see the module's head."""

    def __init__(self, options: Mapping[str, str]):
        names = json.loads(options["sources"])
        self._readers = {
            name: SpoolReader(folder_of(Path(options["spool"]), name)) for name in names
        }
        self._initial: Offsets = json.loads(options["initial"])
        self._control = Path(options["control"])
        self._pulse = Pulse(self._control.with_name(PULSE))

    def initialOffset(self) -> dict[str, Any]:
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._pulse.beat()
        if start[STARTED] == UNSTARTED[STARTED]:
            return {**start, STARTED: [0, 1]}
        control = read_control(self._control)
        if control.is_held:
            return start
        started = [0, max(start[STARTED][1], control.wake)]
        return plan_offsets(start, self._readers, control.events_max) | {STARTED: started}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition((name, end[name][1] - start[name][1])) for name in self._readers]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """One row per source: its name and how many events the batch has of it (for people who look
        at the DataFrame).
        """
        yield partition.value

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: spools are released by the driver, after its own commit."""
