"""A checkpoint as a data source of Spark: ``spark.read.format("wallaroo")``.

Where it runs: Spark's Python processes.

The invariant: all partitions are of one commit.  They are read where Spark reads them, from the
checkpoint's files, which do not change while no run has the checkpoint; a running application
deletes those that it no longer needs, so its state is read when the query is planned, and is sent
in the partitions.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from wallaroo.checkpoints.inspection.reader import CheckpointReader, StateAt
from wallaroo.checkpoints.tables.catalog import ROWS, table_of
from wallaroo.checkpoints.tables.columns import Kind, array_of
from wallaroo.checkpoints.tables.state import batches, sampled_kinds, schema_of, spread
from wallaroo.errors import CheckpointError
from wallaroo.monitoring.status_api.discovery import RUN_FILE

STATE = "state"
OPTIONS = ("checkpoint", "commit", "partitions", "step", "table")
PARTITIONS_DEFAULT = "16"


def register(spark: SparkSession) -> None:
    """Let a session read checkpoints by ``spark.read.format("wallaroo")``."""
    spark.dataSource.register(CheckpointSource)


@dataclass(frozen=True)
class Part(InputPartition):
    """Key groups to read after a commit, or ``content``, an Arrow stream."""

    groups: range
    commit: int
    content: bytes | None = None


class CheckpointSource(DataSource):
    """The data source; its options are ``OPTIONS``."""

    is_sampled = False  # the schema is ours, inferred from some rows

    @classmethod
    def name(cls) -> str:
        return "wallaroo"

    def schema(self) -> StructType:
        """Return the columns of the table, for a step's state inferred from some of its rows."""
        self._check_options()
        root = self._root
        self.is_sampled = True
        if self._table != STATE:
            return from_arrow_schema(table_of(root, self._table).schema)
        state = self.state()
        return from_arrow_schema(schema_of(sampled_kinds(state, self.step_in(state))))

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_options()
        return _Reader(self, to_arrow_schema(schema, timezone="UTC"))

    def _check_options(self) -> None:
        for option in self.options:
            if option.lower() not in OPTIONS:
                near = difflib.get_close_matches(option.lower(), OPTIONS, 1)
                hint = f" Did you mean '{near[0]}'?" if near else ""
                raise CheckpointError(
                    f"option '{option}' is unknown.{hint} Options: {', '.join(OPTIONS)}."
                )
        if self._table not in (STATE, *ROWS):
            raise CheckpointError(
                f"table '{self._table}' is unknown. Choose one of {', '.join((STATE, *ROWS))}."
            )

    @property
    def _root(self) -> Path:
        """Return the checkpoint's folder, for a path or a URL."""
        place = self.options.get("checkpoint") or self.options.get("path")
        if not place:
            raise CheckpointError(
                'option "checkpoint" is missing: the folder given to `wallaroo run --checkpoint`.'
            )
        url = urlparse(place)
        return Path(url.path if url.scheme == "file" else place)

    @property
    def _table(self) -> str:
        return str(self.options.get("table") or STATE)

    def step_in(self, state: StateAt) -> str:
        """Return the step, which may be omitted if there is only one."""
        step = self.options.get("step")
        if step:
            state.check_step(step)
            return str(step)
        if len(state.steps) != 1:
            names = ", ".join(f"'{name}'" for name in state.steps) or "none"
            raise CheckpointError(f'option "step" is missing. State steps: {names}.')
        return state.steps[0]

    def state(self, commit: int | None = None) -> StateAt:
        """Open the state after a commit; by default that of the options, else the newest."""
        option = self.options.get("commit")
        wanted = int(option) if option and commit is None else commit
        return CheckpointReader(self._root).at(wanted)


class _Reader(DataSourceReader):
    """Reader of one table, as planned.

    ``schema``: that of the query.
    """

    def __init__(self, source: CheckpointSource, schema: pa.Schema):
        self._source = source
        self._schema = schema

    def partitions(self) -> list[Part]:
        source = self._source
        if source._table != STATE:
            return [Part(range(0), 0, _packed(table_of(source._root, source._table).to_batches()))]
        is_running = (source._root / RUN_FILE).exists()
        state = source.state()
        step = source.step_in(state)
        pieces = int(source.options.get("partitions") or PARTITIONS_DEFAULT)
        return [
            Part(
                groups,
                state.commit.batch,
                _packed(list(batches(state, step, groups=groups))) if is_running else None,
            )
            for groups in spread(state.groups, pieces)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        source = self._source
        parts: Iterator[pa.RecordBatch]
        if partition.content is not None:
            parts = _unpacked(partition.content)
        else:
            state = source.state(partition.commit)
            parts = batches(state, source.step_in(state), groups=partition.groups)
        for batch in parts:
            self._check(batch)
            arrays = [self._column(batch, field) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _check(self, batch: pa.RecordBatch) -> None:
        """Refuse to omit a column that the rows of the schema's sample did not have."""
        unknown = [name for name in batch.schema.names if name not in self._schema.names]
        if unknown and self._source.is_sampled:
            raise self._misfit(f"some rows have a column '{unknown[0]}', which the first ones lack")

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        column = batch.column(field.name)
        if column.type == field.type:
            return column
        if pa.types.is_string(field.type):
            return array_of(column.to_pylist(), Kind.TEXT)
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self._misfit(
                f"column '{field.name}' is {field.type}, and some rows have {column.type}"
            ) from None

    def _misfit(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{what}. Give the columns that you need: "
            f'spark.read.format("wallaroo").schema("key STRING, ...") (a STRING takes any value).'
        )


def _packed(found: list[pa.RecordBatch]) -> bytes:
    """Return batches, each of its own schema, as a stream of streams."""
    out = pa.BufferOutputStream()
    for batch in found:
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
    return bytes(out.getvalue())


def _unpacked(content: bytes) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(content)
    while source.tell() < len(content):
        with pa.ipc.open_stream(source) as stream:
            yield from stream
