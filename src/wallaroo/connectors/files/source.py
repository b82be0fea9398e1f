"""FilesSourceConfig: the lines or rows of many files, on disks or S3.

Where it runs: the configuration is pickled; the driver lists files, workers read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from wallaroo.connectors.file.source import text
from wallaroo.connectors.files.forms import CSV, FORMS, LINES, PARQUET, form_of
from wallaroo.serdes.csv import Csv
from wallaroo.sources.interface import Event, FedBy, SourceConfig
from wallaroo.sources.replayable import as_it_is
from wallaroo.steps.kinds import Decoder
from wallaroo.steps.option_values import keep_dict


@dataclass(frozen=True, slots=True)
class FilesSourceConfig(SourceConfig[Event]):
    """A source that reads a folder's or pattern's files, exactly once.

    All files are read, each once, without a copy.  A pattern may have ``**`` for subfolders.

    ``path`` is on a disk that workers see, too, or ``s3://bucket/key``.  Workers read files in
    parallel; order is kept within a file.  A file has to be complete when it appears under its
    name: write it elsewhere, or under a name that begins with ``.``, and rename it.

    ``form`` is ``"lines"`` (JSON lines, logs), ``"csv"`` (the first line names the columns) or
    ``"parquet"``; by default it follows the path's suffix.  The decoder gets a line (bytes), a
    `wallaroo.serdes.CsvLine`, or a row (a dict); by default it returns a ``str`` or a dict.
    Names that end with ``.gz`` are decompressed.  With ``watch`` the source reads files that appear
    while it runs, and never ends.

    ``options`` are those of pyarrow's S3FileSystem: ``endpoint_override``, ``region``,
    ``access_key``, ``secret_key``, ``scheme``; without them AWS's own environment decides.
    """

    kind: ClassVar[str] = "files"
    label_form: ClassVar[str] = "files {0.path}"
    opener: ClassVar[str] = "wallaroo.connectors.files.log:open_log"
    fed_by: ClassVar[FedBy] = FedBy.ITSELF
    has_one_order: ClassVar[bool] = False

    name: str
    path: str
    decoder: Decoder[Event] = text  # type: ignore[assignment]  # and Event is str then
    form: str = ""
    watch: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        form = self.form or form_of(self.path)
        if form not in FORMS:
            raise self._wrong(
                f"form={form!r} is unknown.", f"Choose one of {', '.join(map(repr, FORMS))}."
            )
        if self.options and not self.path.startswith("s3://"):
            raise self._wrong("options are for s3:// only.", "Leave them out.")
        if form == PARQUET and self.path.endswith(".gz"):
            raise self._wrong("Parquet files are not gzipped as a whole.", "Name *.parquet.")
        object.__setattr__(self, "form", form)
        keep_dict(self, "options")
        if self.decoder is text and form != LINES:
            rows: Any = Csv().decoder if form == CSV else as_it_is
            object.__setattr__(self, "decoder", rows)

    @property
    def may_end(self) -> bool:
        return not self.watch

    @property
    def has_plain_payloads(self) -> bool:
        return self.form == LINES
