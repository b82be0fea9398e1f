"""Arrow's IPC streams, one per frame, as record batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from wallaroo.vectorized.row_error import RowError


@dataclass(frozen=True, slots=True)
class ArrowIpc:
    """Decoder of payloads that are IPC streams.

    Each has any number of rows and is its own block, so blocks do not depend on which frames arrive
    together.
    """

    columns: tuple[str, ...] = ()  # empty: all
    payloads_max: ClassVar[int] = 1  # per call

    def __call__(self, payloads: list[bytes]) -> pa.Table:
        """Return a payload's rows.  Raises RowError: not an IPC stream, or a column is missing."""
        try:
            with pa.ipc.open_stream(payloads[0]) as stream:
                table = stream.read_all()
            return table.select(list(self.columns)) if self.columns else table
        except (pa.ArrowException, OSError, KeyError) as error:
            raise RowError(0, ValueError(str(error))) from error
