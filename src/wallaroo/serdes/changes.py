"""Changes of a database's tables: their form as events, and Debezium's envelope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from wallaroo.serdes.json import Json
from wallaroo.serdes.serde import STOP, Codec, Serde
from wallaroo.serdes.shape_errors import ShapeError, shown
from wallaroo.serdes.typed import reader_of
from wallaroo.steps.kinds import Decoder

Row = TypeVar("Row")
Op = Literal["insert", "update", "delete", "truncate"]
# Debezium's letters; "r" is a row that a snapshot read
OPS: dict[Any, Op] = {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "truncate"}
UNCHANGED = "unchanged"  # in a change's source: the columns whose values were not sent
NOT_IN_SNAPSHOT = (None, False, "false")


@dataclass(frozen=True, slots=True)
class Change(Generic[Row]):
    """A change of one row, or the truncation of a table.

    ``before`` and ``after`` are the row as it was and as it is; None if there is none, or if the
    database does not send the old row.
    """

    op: Op
    before: Row | None
    after: Row | None
    table: str = ""  # with its schema, if it has one
    # the database's own facts about the place in its log
    source: Mapping[str, Any] = field(default_factory=dict, hash=False)
    transaction: str = ""  # its id; empty if it is unknown
    order: int | None = None  # the number of the change in its transaction, from 1
    is_snapshot: bool = False  # whether the row was there before changes were recorded

    @property
    def row(self) -> Row:
        """Return the row as it is, or as it was if it is deleted.

        Raises ValueError if there is neither, as in a truncation.
        """
        row = self.before if self.after is None else self.after
        if row is None:
            raise ValueError(f"{self.op} of table '{self.table}' has no row")
        return row


class _NotSent:
    """The value of a column that was not sent, which fits no type: a default would replace it."""

    def __repr__(self) -> str:
        return "a value that the update did not change and the server did not send"


NOT_SENT = _NotSent()


class ChangeCodec(Codec):
    """The codec of changes of dict rows, as changes of typed rows."""

    def __init__(self, kind: Any, before: Any):
        super().__init__(kind, before)
        self._after = _reader("after", kind)
        self._before = _reader("before", before or kind)

    def decode(self, payload: Change[Any]) -> Change[Any]:
        after = payload.after
        if after is not None and UNCHANGED in payload.source:
            after = {**after, **dict.fromkeys(payload.source[UNCHANGED], NOT_SENT)}
        return replace(payload, before=self._before(payload.before), after=self._after(after))

    def encode(self, event: Any) -> bytes:
        raise TypeError("a change of a table has no payload; write its row")


class DebeziumCodec(ChangeCodec):
    """The codec of Debezium's envelopes in a format."""

    def __init__(self, kind: Any, payload: Codec, before: Any):
        super().__init__(kind, before)
        self._arguments = (kind, payload, before)
        self._payload = payload

    def decode(self, payload: Any) -> Change[Any] | None:  # type: ignore[override]  # bytes in
        """Return the change; None for a tombstone, which follows a deletion."""
        if payload is None:
            return None
        value = self._payload.decode(payload)
        if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
            value = value["payload"]
        return None if value is None else self._change(value)

    def _change(self, envelope: Any) -> Change[Any]:
        if not isinstance(envelope, dict) or "op" not in envelope:
            raise ValueError(
                f"the payload is not a Debezium envelope: it has no 'op': {shown(envelope)}. Read "
                f"flattened records (ExtractNewRecordState) with Json or Avro."
            )
        op = OPS.get(envelope["op"])
        if op is None:
            choices = ", ".join(map(repr, OPS))
            raise ShapeError(f"expected one of {choices}, got {shown(envelope['op'])}", "op")
        source = envelope.get("source") or {}
        transaction = envelope.get("transaction") or {}
        number = transaction.get("id", source.get("txId"))
        names = (source.get("schema") or source.get("db"), source.get("table"))
        return Change(
            op,
            self._before(envelope.get("before")),
            self._after(envelope.get("after")),
            ".".join(str(name) for name in names if name),
            source,
            "" if number is None else str(number),
            transaction.get("total_order"),
            envelope["op"] == "r" or source.get("snapshot") not in NOT_IN_SNAPSHOT,
        )


def _reader(side: str, kind: Any) -> Callable[[Any], Any]:
    """Return a function from a dict or None to a row of a type."""
    if kind is None:
        return lambda row: row
    read = reader_of(kind)

    def read_row(row: Any) -> Any:
        if row is None:
            return None
        try:
            return read(row)
        except ShapeError as error:
            text, path = error.args
            raise ShapeError(text, f"{side}{path}") from None

    return read_row


class Debezium(Serde[Change[Any]]):
    """Changes of a database's tables, as Debezium writes them to Kafka.

    ``kind`` is the type of rows, for example a dataclass; without it they are dicts.  ``payload``
    is the format of envelopes: JSON with and without schemas (default), or
    ``Avro(schema_registry=...)``. ``before`` is the type of rows before the change, if it differs:
    databases send only the key unless configured to send the whole row.

    A tombstone (a record without a value) is not an event.
    """

    def __init__(
        self,
        kind: Any = None,
        payload: Serde[Any] | None = None,
        *,
        before: Any = None,
        on_error: str = STOP,
    ):
        form = Json() if payload is None else payload
        name = f"debezium {getattr(kind, '__name__', 'rows')}"
        super().__init__(name, DebeziumCodec(kind, form.codec, before), on_error)


def change_decoder(
    kind: type[Row], *, before: Any = None, on_error: str = STOP
) -> Decoder[Change[Row]]:
    """Return a decoder that converts the rows of changes from dicts to a type.

    ``before`` is the type of rows as they were, if it is another.
    """
    name = f"decode change of {kind.__name__}"
    return Decoder(ChangeCodec(kind, before).decode, name, on_error=on_error, is_pure=True)
