"""RollingSinkConfig: outputs in whole files or objects, exactly once.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.files.rows import RowPack, unpacked
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.kinds import Encoder

LINES = "lines"
PARQUET = "parquet"
ROLL_BYTES = 64 << 20
ROLL_S = 60.0


@dataclass(frozen=True, slots=True)
class RollingSinkConfig(QueuedSinkConfig):
    """A sink that writes files, or objects of ``s3://bucket/prefix``; exactly once.

    A file holds whole batches.  It is written when ``roll_bytes`` of output wait, when the oldest
    of it is ``roll_s`` old, and when the run stops; it appears whole and never changes.  Until then
    output waits in the outbox.  Read ``part-*``, in order of name.

    Without ``columns`` an output is a line (JSON lines, say), in ``part-*.jsonl``, or ``.jsonl.gz``
    with ``compress``.  With ``columns``, names and Arrow's types (``{"word": "string", "total":
    "int64"}``, or a ``pyarrow.DataType``), files are Parquet: the encoder returns a dict, a
    dataclass or a tuple, or there is no encoder and events are that.

    ``options`` are those of pyarrow's S3FileSystem: ``endpoint_override``, ``region``,
    ``access_key``, ``secret_key``, ``scheme``.
    """

    kind: ClassVar[str] = "rolling"
    target_form: ClassVar[str] = "{0.path}"
    takes_rows: ClassVar[bool] = True
    shown_options: ClassVar[str] = "{0.path!r}"
    system: ClassVar[str] = "wallaroo.connectors.files.committer:PartsSystem"
    queue: ClassVar[str] = "wallaroo.connectors.files.committer:RollingCommitter"

    path: str
    encoder: Encoder[Any] | None = None
    columns: Mapping[str, Any] | None = None
    roll_bytes: int = ROLL_BYTES
    roll_s: float = ROLL_S
    compress: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if self.roll_bytes < 1 or self.roll_s < 0:
            raise self._wrong(
                f"roll_bytes={self.roll_bytes!r}, roll_s={self.roll_s!r} cannot be kept.",
                "Give a size of 1 byte or more, and seconds.",
            )
        if self.options and not self.path.startswith("s3://"):
            raise self._wrong("options are for s3:// only.", "Leave them out.")
        if self.columns is not None:
            self._take_columns(dict(self.columns))
        object.__setattr__(self, "options", dict(self.options))

    def _take_columns(self, columns: dict[str, Any]) -> None:
        if self.compress:
            raise self._wrong("Parquet compresses by itself.", "Leave compress out.")
        if not columns:
            raise self._wrong("columns={} names none.", "Give names and types of columns.")
        object.__setattr__(self, "columns", columns)
        pack = RowPack(columns)
        if problem := pack.problem():
            fix = "Write Arrow's names: string, int64, double, bool, binary, timestamp[us], date32."
            raise self._wrong(problem, fix)
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def decoded(self, output: bytes) -> Any:
        """Return a staged output: a dict by column, or the bytes of a line."""
        if self.columns is None:
            return output
        [row] = unpacked([memoryview(output)])
        return dict(zip(self.columns, row, strict=True))

    @property
    def address(self) -> str:
        return str(self.options.get("endpoint_override", ""))
