"""Dict rows of Parquet files and databases as typed values."""

from __future__ import annotations

from typing import Any, TypeVar

from wallaroo.serdes.serde import STOP, Codec, exact_class
from wallaroo.serdes.typed import reader_of
from wallaroo.steps.kinds import Decoder

Row = TypeVar("Row")


class RowCodec(Codec):
    """The codec of dicts as values of a type."""

    def __init__(self, kind: Any):
        super().__init__(kind)
        self.event_class = exact_class(kind)
        self._read = reader_of(kind)

    def decode(self, payload: Any) -> Any:
        return self._read(payload)

    def encode(self, event: Any) -> bytes:
        raise TypeError("a row has no payload")


def row_decoder(kind: type[Row], *, on_error: str = STOP) -> Decoder[Row]:
    """Return a decoder that converts rows (dicts) to values of a type, such as a dataclass."""
    name = f"decode row {kind.__name__}"
    return Decoder(RowCodec(kind).decode, name, on_error=on_error, is_pure=True)
