"""SparkSourceConfig: the rows of a Spark DataFrame as events.

The DataFrame is a stream or a table.

Where it runs: the configuration is pickled; the DataFrame is read by a Spark of its own, in a
feeder process.  Nothing here needs PySpark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.spark.rows import record_batches, row_decoder_of
from wallaroo.sources.interface import Event, SourceConfig
from wallaroo.sources.replayable import as_it_is
from wallaroo.steps.kinds import Callback, Decoder
from wallaroo.steps.option_values import is_seconds, keep_dict

ROWS = "rows"
BATCHES = "batches"
FORMS = (ROWS, BATCHES)


@dataclass(frozen=True, slots=True)
class SparkSourceConfig(SourceConfig[Event]):
    """A source of the rows of a Spark DataFrame, exactly once.

    ``reader`` is called with a `pyspark.sql.SparkSession` and returns the DataFrame: of
    ``spark.readStream``, whose rows are read as they appear, or of ``spark.read``, whose rows are
    read once, after which the source ends.  Each row is an event, a dict, or the result of
    ``decoder`` (`wallaroo.serdes.row_decoder`).  With ``form="batches"`` an event is a
    ``pyarrow.RecordBatch`` of up to 8,192 rows, for vectorized steps.

    The DataFrame is read by a Spark of its own on this machine (``master``), with the settings of
    ``conf``, such as ``spark.jars.packages``.  A streaming DataFrame is read every ``every_s``
    seconds; with ``until_now`` the source ends when the rows that existed at its start were read.
    """

    kind: ClassVar[str] = "spark"
    may_end: ClassVar[bool] = True
    opener: ClassVar[str] = "wallaroo.spark.tables.feed:open_feed"

    name: str
    reader: Callable[[Any], Any]
    decoder: Decoder[Event] = as_it_is
    form: str = ROWS
    until_now: bool = False
    every_s: float = 0.0
    master: str = "local[1]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold a password

    def __post_init__(self) -> None:
        is_copy = isinstance(self.reader, Callback)
        if not is_copy and not callable(self.reader):
            raise self._wrong(
                f"reader={self.reader!r} is not a function.",
                "Give a function of a SparkSession that returns a DataFrame: lambda spark: "
                "spark.readStream.format(…).load().",
            )
        if self.form not in FORMS:
            raise self._wrong(
                f"form={self.form!r} is unknown.", f"Choose one of {', '.join(map(repr, FORMS))}."
            )
        if not is_seconds(self.every_s):
            raise self._wrong(f"every_s={self.every_s!r} is not a time.", "Give seconds.")
        if not is_copy:
            object.__setattr__(self, "reader", Callback(self.reader))
        keep_dict(self, "conf")
        if self.form == BATCHES:
            if self.decoder not in (as_it_is, record_batches):
                raise self._wrong(
                    "form='batches' has a decoder of its own.",
                    "Leave the decoder out; the next step gets a pyarrow.RecordBatch.",
                )
            object.__setattr__(self, "decoder", record_batches)
        else:
            object.__setattr__(self, "decoder", row_decoder_of(self.decoder))

    @property
    def label(self) -> str:
        return f"spark {self.name}"
