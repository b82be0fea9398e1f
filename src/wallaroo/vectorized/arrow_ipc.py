"""Arrow's IPC streams, one per frame, as record batches.

Where it runs: pure (in workers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from wallaroo.vectorized.row_error import RowError


@dataclass(frozen=True, slots=True)
class ArrowIpc:
    """Decodes payloads that are IPC streams, each of any number of rows; those that come together
    have one schema.
    """

    columns: tuple[str, ...] = ()  # none: all

    def __call__(self, payloads: list[bytes]) -> pa.Table | None:
        """Return the rows of all payloads.  Raises RowError for payloads that are no IPC stream, or
        have another schema than the first.
        """
        tables: list[Any] = []
        wrong: dict[int, str] = {}
        for at, payload in enumerate(payloads):
            try:
                table = self._read(payload)
                if tables and table.schema != tables[0].schema:
                    raise ValueError("its schema is not that of the frames before it")
                tables.append(table)
            except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
                wrong[at] = str(error)
        if wrong:
            raise RowError(list(wrong), ValueError(next(iter(wrong.values()))))
        return pa.concat_tables(tables) if tables else None

    def _read(self, payload: bytes) -> Any:
        with pa.ipc.open_stream(payload) as stream:
            table = stream.read_all()
        return table.select(list(self.columns)) if self.columns else table
