"""What a payload costs: a bid of Nexmark decoded and encoded by each serde, beside the same work of
the library below it.

    python -m benchmarks.engine.codecs [--rounds N] [--events N]

The library returns what its users get of it: an object of msgspec's, a list of texts, a dict, a
message.  `json_lines`, which uses pyarrow, is compared with polars.

Processor time, not wall clock, in turns; the least of all rounds.

Where it runs: the benchmark's process, without Spark.
"""

from __future__ import annotations

import csv
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # as the others, it is measured on one core

import fastavro
import msgspec
import polars as pl
import pyarrow as pa
import pydantic
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from msgspec import to_builtins

from benchmarks.lib.machine import Report, options, settings_of
from benchmarks.nexmark.events import SERDE, Bid
from benchmarks.nexmark.generator import event
from wallaroo import json_lines
from wallaroo.serdes import Avro, Csv, Json, MessagePack, Protobuf

Function = Callable[[Any], Any]
BLOCK = 4_000  # payloads: about a megabyte
TIMES_MAX = 1.3  # JSON and MessagePack: times the library's own work into the same class
NAMES = tuple(field.name for field in fields(Bid))
NUMBERS = frozenset({"auction", "bidder", "price", "at"})
_values_of = attrgetter(*NAMES)
SCHEMA = {
    "type": "record",
    "name": "Bid",
    "fields": [{"name": name, "type": "long" if name in NUMBERS else "string"} for name in NAMES],
}


class Case(NamedTuple):
    """A serde's direction and the library's own."""

    name: str
    serde: Function
    library: Function
    inputs: list[Any]
    times_max: float | None = None
    per_input: int = 1  # payloads


def main() -> int:
    """Measure; print the report."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--events", type=int, default=20_000, help="per round")
    args = parser.parse_args()
    report = Report("codecs", settings_of(args))
    numbers = (number for number in range(10**9))
    events = (event(number) for number in numbers)
    bids = [next(each for each in events if type(each) is Bid) for _ in range(args.events)]
    for case in _cases(bids):
        serde_us, library_us = _least_us(case, args.rounds)
        report.add(f"{case.name}", serde_us, "us")
        report.add(f"{case.name}: the library", library_us, "us")
        ratio = serde_us / library_us
        report.add(f"{case.name}: times the library", ratio, "", at_most=case.times_max)
    return report.finish(args.json)


def _least_us(case: Case, rounds: int) -> tuple[float, float]:
    """Return the time of one payload by the serde and by the library."""
    least = [float("inf"), float("inf")]
    for _ in range(rounds):
        for place, function in enumerate((case.serde, case.library)):
            began = time.process_time()
            for each in case.inputs:
                function(each)
            least[place] = min(least[place], time.process_time() - began)
    payloads = len(case.inputs) * case.per_input
    serde_us, library_us = (each / payloads * 1e6 for each in least)
    return serde_us, library_us


def _cases(bids: list[Bid]) -> Iterator[Case]:
    for name, serde, module in (
        ("JSON", Json(Bid), msgspec.json),
        ("MessagePack", MessagePack(Bid), msgspec.msgpack),
    ):
        decode = module.Decoder(Bid).decode
        yield from _both(name, serde, bids, decode, module.Encoder().encode, TIMES_MAX)
    tagged = SERDE.decoder.decode
    payloads = [SERDE.encoder.encode(bid) for bid in bids]
    plain = msgspec.json.Decoder(Bid).decode
    yield Case("decode JSON with a tag", tagged, plain, payloads)
    plain_objects = msgspec.json.Decoder().decode
    yield Case("decode JSON, dicts", Json().decoder.decode, plain_objects, payloads, TIMES_MAX)
    yield from _models(bids)
    yield _in_blocks(payloads)
    yield from _both("CSV", Csv(Bid, columns=NAMES), bids, _csv_row, _csv_line)
    yield from _avro(bids)
    yield from _protobuf(bids)


def _models(bids: list[Bid]) -> Iterator[Case]:
    hints: dict[str, Any] = {name: int if name in NUMBERS else str for name in NAMES}
    kind = pydantic.create_model("Bid", **hints)
    models = [kind(**{name: getattr(bid, name) for name in NAMES}) for bid in bids]

    def encode(model: Any) -> bytes:
        text: str = model.model_dump_json(by_alias=True)
        return text.encode()

    yield from _both("JSON, pydantic", Json(kind), models, kind.model_validate_json, encode)


def _in_blocks(payloads: list[bytes]) -> Case:
    """Return JSON that becomes columns a block at a time, by `json_lines` and by polars."""
    arrow = json_lines(pa.schema([(name, _arrow_of(name)) for name in NAMES])).function
    schema = {name: pl.Int64() if name in NUMBERS else pl.String() for name in NAMES}

    def read(lines: list[bytes]) -> pl.DataFrame:
        return pl.read_ndjson(b"\n".join(lines), schema=schema)

    blocks = [payloads[at : at + BLOCK] for at in range(0, len(payloads) - BLOCK + 1, BLOCK)]
    return Case("decode JSON in blocks", arrow, read, blocks, per_input=BLOCK)


def _arrow_of(name: str) -> pa.DataType:
    return pa.int64() if name in NUMBERS else pa.string()


def _both(
    name: str,
    serde: Any,
    bids: list[Any],
    decode: Function,
    encode: Function,
    times_max: float | None = None,
) -> Iterator[Case]:
    payloads = [serde.encoder.encode(bid) for bid in bids]
    yield Case(f"decode {name}", serde.decoder.decode, decode, payloads, times_max)
    yield Case(f"encode {name}", serde.encoder.encode, encode, bids, times_max)


def _csv_row(payload: bytes) -> list[str]:
    return next(csv.reader([payload.decode()]))


def _csv_line(bid: Bid) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(_values_of(bid))
    return out.getvalue().encode()


def _avro(bids: list[Bid]) -> Iterator[Case]:
    schema = fastavro.parse_schema(SCHEMA)

    def decode(payload: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(payload), schema, None)

    def encode(values: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, values)
        return out.getvalue()

    rows = [{name: getattr(bid, name) for name in NAMES} for bid in bids]
    yield from _both("Avro, dicts", Avro(SCHEMA), rows, decode, encode)
    typed = Avro(SCHEMA, Bid)
    payloads = [typed.encoder.encode(bid) for bid in bids]
    yield Case("decode Avro", typed.decoder.decode, decode, payloads)
    yield Case("encode Avro", typed.encoder.encode, lambda bid: encode(to_builtins(bid)), bids)


def _protobuf(bids: list[Bid]) -> Iterator[Case]:
    kind = _message_class()
    messages = [kind(**{name: getattr(bid, name) for name in NAMES}) for bid in bids]
    yield from _both("Protobuf", Protobuf(kind), messages, kind.FromString, kind.SerializeToString)


def _message_class() -> Any:
    """Return the class that protoc would generate."""
    file = descriptor_pb2.FileDescriptorProto(name="bid.proto", package="nexmark", syntax="proto3")
    message = file.message_type.add(name="Bid")
    for number, name in enumerate(NAMES, 1):
        field = descriptor_pb2.FieldDescriptorProto
        kind = field.TYPE_INT64 if name in NUMBERS else field.TYPE_STRING
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nexmark.Bid"))


if __name__ == "__main__":
    sys.exit(main())
