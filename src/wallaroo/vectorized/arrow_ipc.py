"""Arrow's IPC streams, one per frame, as record batches.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from wallaroo.vectorized.row_error import RowError


@dataclass(frozen=True, slots=True)
class ArrowIpc:
    """Decodes payloads that are IPC streams, each of any number of rows, and each a block of its
    own: what a block is does not depend on what arrives together.
    """

    columns: tuple[str, ...] = ()  # none: all
    payloads_max: ClassVar[int] = 1  # of one call

    def __call__(self, payloads: list[bytes]) -> pa.Table:
        """Return the rows of the payload.  Raises RowError for what is no IPC stream, or lacks a
        column.
        """
        try:
            with pa.ipc.open_stream(payloads[0]) as stream:
                table = stream.read_all()
            return table.select(list(self.columns)) if self.columns else table
        except (pa.ArrowInvalid, OSError, KeyError) as error:
            raise RowError(0, ValueError(str(error))) from error
