"""RollingSinkConfig: outputs in whole files or objects, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.files.forms import FORMS, LINES, PARQUET
from wallaroo.connectors.files.rolling_files import Partitions
from wallaroo.connectors.files.rows import RowPack, each_row
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import is_at_least, is_seconds, keep_dict

ROLL_BYTES = 64 << 20
ROLL_S = 60.0


@dataclass(frozen=True, slots=True)
class RollingSinkConfig(QueuedSinkConfig):
    """A sink that writes files, or objects of ``s3://bucket/prefix``; exactly once.

    A file holds whole batches.  It is written when ``roll_bytes`` of output wait, when the oldest
    of it is ``roll_s`` old, and when the run stops; it appears whole and never changes.  Until then
    output waits in the outbox.  Read ``part-*``, in order of name.

    Without ``columns`` an output is a line (for example JSON lines), in ``part-*.jsonl``, or
    ``.jsonl.gz`` with ``compress``.  With ``columns``, names and Arrow's types (``{"word":
    "string", "total": "int64"}``, or a ``pyarrow.DataType``), files are Parquet, or of another
    ``form``, ``"csv"`` or ``"lines"`` (JSON): the encoder returns a dict, a dataclass or a tuple,
    or there is no encoder and events already have this form.

    ``partition_by`` writes rows into folders in Hive's style, ``dt=2026-01-02/hour=13/country=de``:
    columns, or times in UTC of one, ``("dt(at)", "hour(at)", "country")``; there are ``year``,
    ``month``, ``day``, ``hour`` and ``dt``.  Each file holds one folder's rows of some batches.
    With ``mark_success`` a folder of a time gets an empty file ``_SUCCESS`` when the watermark has
    passed the time's end: its rows are complete, except for late ones.

    ``options`` are those of pyarrow's S3FileSystem: ``endpoint_override``, ``region``,
    ``access_key``, ``secret_key``, ``scheme``.
    """

    kind: ClassVar[str] = "rolling"
    target_form: ClassVar[str] = "{0.path}"
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
    form: str = field(default="", kw_only=True)
    partition_by: Sequence[str] = field(default=(), kw_only=True)
    mark_success: bool = field(default=False, kw_only=True)
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not is_at_least(self.roll_bytes, 1) or not is_seconds(self.roll_s):
            raise self._wrong(
                f"roll_bytes={self.roll_bytes!r}, roll_s={self.roll_s!r} cannot be kept.",
                "Give a size of 1 byte or more, and seconds.",
            )
        if self.options and not self.path.startswith("s3://"):
            raise self._wrong("options are for s3:// only.", "Leave them out.")
        if self.columns is not None:
            keep_dict(self, "columns")
            self._take_columns(dict(self.columns))
        elif self.form or self.partition_by or self.mark_success:
            raise self._wrong(
                "form, partition_by and mark_success are for rows.",
                "Give columns={'word': 'string', 'total': 'int64'}, names and types.",
            )
        keep_dict(self, "options")

    def _take_columns(self, columns: dict[str, Any]) -> None:
        if (form := self.form or PARQUET) not in FORMS:
            raise self._wrong(f"form={form!r} is none.", f"Give one of {', '.join(FORMS)}.")
        if self.compress and form == PARQUET:
            raise self._wrong("Parquet compresses by itself.", "Leave compress out.")
        if not columns:
            raise self._wrong("columns={} names none.", "Give names and types of columns.")
        object.__setattr__(self, "columns", columns)
        if problem := RowPack(columns).problem(form):
            fix = "Write Arrow's names: string, int64, double, bool, binary, timestamp[us], date32."
            raise self._wrong(problem, fix)
        partitions = self._checked_partitions(columns)
        levels = partitions.levels if partitions else ()
        checks = {level.column: level.check for level in levels if not level.form}
        pack = RowPack(columns, checks, is_finite=form == LINES)
        object.__setattr__(self, "encoder", wrapped(self.encoder, pack))

    def _checked_partitions(self, columns: dict[str, Any]) -> Partitions | None:
        by = (self.partition_by,) if isinstance(self.partition_by, str) else self.partition_by
        object.__setattr__(self, "partition_by", tuple(by))
        try:
            partitions = self.partitions
            if self.mark_success and partitions is None:
                raise ValueError("no folder is one of a time")
            if self.mark_success and partitions is not None:
                partitions.check_ends()
        except ValueError as error:
            options = f"partition_by={self.partition_by!r}"
            options += ", mark_success=True" * self.mark_success
            raise self._wrong(
                f"{options}: {error}.",
                f"Name some of {', '.join(columns)} (texts, integers, dates), or times in one: "
                f"'dt(column)', 'hour(column)'.",
            ) from None
        return partitions

    @property
    def needs_time(self) -> bool:
        return self.mark_success

    @property
    def staged_form(self) -> str:
        return "" if self.columns else "lines"

    @property
    def partitions(self) -> Partitions | None:
        """Return the levels of folders; None if all files are in one."""
        return Partitions(self.partition_by, self.columns or {}) if self.partition_by else None

    def decoded_all(self, outputs: Sequence[bytes]) -> list[Any]:
        """Return staged outputs: a dict by column for each row, or the bytes of lines."""
        if self.columns is None:
            return list(outputs)
        columns = self.columns
        return [dict(zip(columns, row, strict=True)) for row in each_row(outputs)]

    @property
    def address(self) -> str:
        return str(self.options.get("endpoint_override", ""))
