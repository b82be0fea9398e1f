"""Changes of tables: Debezium's envelopes in JSON and Avro, typed rows, snapshots, tombstones."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import wallaroo
from tests.unit.serdes.registry_server import running_registry
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Avro, Change, Debezium, SchemaRegistry, change_decoder
from wallaroo.sources import ReplayableSource


@dataclass(frozen=True)
class Order:
    id: int
    item: str
    price: Decimal | None = None


class OrderKey(NamedTuple):
    id: int


SOURCE = {
    "connector": "postgresql",
    "db": "shop",
    "schema": "public",
    "table": "orders",
    "txId": 571,
    "lsn": 24023128,
    "snapshot": "false",
}
TEA = {"id": 1, "item": "tea", "price": "2.50"}
JAM = {"id": 1, "item": "jam", "price": None}


def envelope(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": SOURCE, "ts_ms": 1, **more}


def packed(value: Any) -> bytes:
    return json.dumps(value).encode()


def decoded(value: Any, *arguments: Any, **options: Any) -> Any:
    return Debezium(*arguments, **options).decoder.function(packed(value))


@pytest.mark.parametrize("is_with_schema", [False, True])
@pytest.mark.parametrize(
    ("op", "before", "after", "named"),
    [("c", None, TEA, "insert"), ("u", TEA, JAM, "update"), ("d", JAM, None, "delete")],
)
def test_rows_are_of_their_type(
    op: str, before: Any, after: Any, named: str, is_with_schema: bool
) -> None:
    value = envelope(op, before, after)
    if is_with_schema:
        value = {"schema": {"type": "struct", "name": "Envelope"}, "payload": value}
    rows = {"tea": Order(1, "tea", Decimal("2.50")), "jam": Order(1, "jam")}
    change = decoded(value, Order)
    assert change.op == named
    assert change.before == (before and rows[before["item"]])
    assert change.after == (after and rows[after["item"]])
    assert change.row == rows[(after or before)["item"]]
    assert (change.table, change.transaction, change.source["lsn"]) == (
        "public.orders",
        "571",
        24023128,
    )
    assert (change.order, change.is_snapshot) == (None, False)


def test_rows_of_a_snapshot_are_marked() -> None:
    assert decoded(envelope("r", None, TEA), Order).is_snapshot
    assert decoded(envelope("r", None, TEA), Order).op == "insert"
    for mark, is_snapshot in (("true", True), ("last", True), ("false", False), (None, False)):
        value = envelope("c", None, TEA, source={**SOURCE, "snapshot": mark})
        assert decoded(value).is_snapshot is is_snapshot


def test_the_order_in_a_transaction_is_known_if_debezium_writes_it() -> None:
    block = {"id": "571:53195832", "total_order": 2, "data_collection_order": 1}
    change = decoded(envelope("c", None, TEA, transaction=block))
    assert (change.transaction, change.order, change.after) == ("571:53195832", 2, TEA)


def test_a_truncation_has_no_row() -> None:
    change = decoded(envelope("t", None, None), Order)
    assert change.op == "truncate"
    with pytest.raises(ValueError, match=r"truncate of table 'public\.orders' has no row"):
        _ = change.row


def test_a_row_that_was_may_be_of_another_type() -> None:
    partial = envelope("d", {"id": 1, "item": None, "price": None}, None)
    assert decoded(partial, Order, before=OrderKey).row == OrderKey(1)
    with pytest.raises(ValueError, match=r"before\.item: expected str"):
        decoded(partial, Order)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (envelope("c", None, {**TEA, "id": "x"}), r"after\.id: expected int, got 'x'"),
        (envelope("c", None, {"id": 1}), "after: object missing required field 'item'"),
        (envelope("m", None, None), r"op: expected one of 'c', 'r', 'u', 'd', 't', got 'm'"),
        (TEA, r"not a Debezium envelope: it has no 'op': .*ExtractNewRecordState"),
        ([1], "not a Debezium envelope"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decoded(value, Order)


AVRO_ORDER = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": ["null", "string"], "default": None},
    ],
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "op", "type": "string"},
        {"name": "before", "type": ["null", AVRO_ORDER], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "schema", "type": "string"},
                    {"name": "table", "type": "string"},
                    {"name": "txId", "type": ["null", "long"], "default": None},
                    {"name": "snapshot", "type": ["null", "string"], "default": "false"},
                ],
            },
        },
    ],
}


def test_avro_with_a_schema_registry() -> None:
    source = {name: SOURCE[name] for name in ("schema", "table", "txId", "snapshot")}
    value = {"op": "u", "before": TEA, "after": JAM, "source": source}
    with running_registry() as registry:
        writer = Avro(AVRO, schema_registry=SchemaRegistry(registry.url, "orders-value"))
        payload: Any = writer.encoder.function(value)
        assert payload[:1] == b"\0"
        changes = Debezium(Order, Avro(schema_registry=SchemaRegistry(registry.url)))
        change: Any = changes.decoder.function(payload)
    assert (change.before, change.after) == (Order(1, "tea", Decimal("2.50")), Order(1, "jam"))
    assert (change.op, change.table, change.transaction) == ("update", "public.orders", "571")


def test_a_decoder_travels() -> None:
    decoder = pickle.loads(pickle.dumps(Debezium(Order, before=OrderKey).decoder))
    value = envelope("d", {"id": 1}, None)
    assert decoder.function(packed(value)).before == OrderKey(1)


def test_rows_of_changes_become_values_of_a_type() -> None:
    change = Change("update", {"id": 1}, TEA, "orders")
    decode: Any = change_decoder(Order, before=OrderKey).function
    assert decode(change) == Change(
        "update", OrderKey(1), Order(1, "tea", Decimal("2.50")), "orders"
    )
    with pytest.raises(ValueError, match="before: object missing required field 'item'"):
        change_decoder(Order).function(change)


class Newest:
    row: Order | None = None


@wallaroo.key_extractor
def by_id(change: Change[Order]) -> str:
    return str(change.row.id)


@wallaroo.state_computation(name="keep", state=Newest)
def keep(change: Change[Order], newest: Newest) -> str:
    newest.row = change.after
    return f"{change.op} {newest.row.item if newest.row else '-'}"


class Topic(ReplayableSource[Any]):
    """The payloads of a topic's records: a tombstone is None."""

    def __init__(self, payloads: list[bytes | None]):
        super().__init__("orders", Debezium(Order).decoder)
        self.payloads = payloads

    def end(self, partition: str) -> int:
        return len(self.payloads)

    def is_ended(self) -> bool:
        return True

    def read(self, partition: str, start: int, end: int) -> list[bytes | None]:
        return self.payloads[start:end]


def test_changes_of_a_table_are_state_per_key_and_tombstones_no_events(tmp_path: Path) -> None:
    values = [envelope("c", None, TEA), envelope("u", TEA, JAM), envelope("d", JAM, None)]
    topic = Topic([*map(packed, values), None, b"null", packed(values[0])])
    sink = wallaroo.FileSinkConfig(
        str(tmp_path / "out"), wallaroo.encoder(lambda text: text), form="lines"
    )
    application = wallaroo.build_application(
        "orders", wallaroo.source("orders", topic).key_by(by_id).to(keep).to_sink(sink)
    )
    run = Run(application, RunOptions(status_address=None), InProcessHost(2))
    run.begin()
    run.wait()
    parts = sorted((tmp_path / "out").glob("[!.]*"))
    wanted = ["insert tea", "update jam", "delete -", "insert tea"]
    assert [line for part in parts for line in part.read_text().splitlines()] == wanted
