"""LakeSinkConfig: the options that sinks of table formats have in common.

Where it runs: the configuration travels; its writer runs in workers, its committer in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from wallaroo.connectors.files.rows import each_row
from wallaroo.connectors.lake.columns import columns_of
from wallaroo.connectors.lake.rows import ChangePack
from wallaroo.sinks.changes import Delete, form_with
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.wrapped_encoder import wrapped
from wallaroo.steps.option_values import is_at_least, is_seconds, keep_dict

GROUP_BYTES = 64 << 20
GROUP_S = 60.0


class LakeSinkConfig(QueuedSinkConfig):
    """A sink whose commits are written in groups, each as one transaction of a table."""

    queue: ClassVar[str] = "wallaroo.sinks.queued.group_committer:GroupCommitter"

    columns: Any
    key: Sequence[str]
    partition_by: Sequence[str]
    evolve: bool
    group_bytes: int
    group_s: float
    options: Mapping[str, Any]

    @property
    def staged_form(self) -> str:
        return form_with(self.key)

    def _set_columns(self) -> None:
        """Check the options in common; let the encoder pack rows of the columns."""
        if not is_at_least(self.group_bytes, 1) or not is_seconds(self.group_s):
            raise self._wrong(
                f"group_bytes={self.group_bytes!r}, group_s={self.group_s!r} cannot be kept.",
                "Give a size of 1 byte or more, and seconds.",
            )
        try:
            columns = columns_of(self.columns)
        except ValueError as error:
            raise self._wrong(
                f"{error}.",
                "Give columns={'word': 'string', 'total': 'int64'}, a pyarrow.schema, or a "
                "dataclass of str, int, float, bool, bytes, date, datetime and lists of them.",
            ) from None
        key = self._names("key", columns)
        partition_by = self._partition_names(columns)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "partition_by", partition_by)
        keep_dict(self, "options")
        object.__setattr__(self, "encoder", wrapped(self.encoder, ChangePack(columns, key)))

    def decoded_all(self, outputs: Sequence[bytes]) -> list[Any]:
        """Return staged outputs: a dict by column for each row, and deletions."""
        changes = []
        for change in each_row(outputs):
            row = dict(zip(self.columns, change, strict=True))
            is_deletion = type(change) is list
            changes.append(Delete(tuple(map(row.get, self.key))) if is_deletion else row)
        return changes

    def _partition_names(self, columns: Mapping[str, Any]) -> tuple[str, ...]:
        return self._names("partition_by", columns)
