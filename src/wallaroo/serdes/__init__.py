"""Serdes: typed decoders and encoders for JSON, CSV, Avro, Protobuf and MessagePack.

Where it runs: everywhere.  Avro imports its library when a serde is created.

A serde has a ``decoder`` for sources and encoders for sinks.  A payload that cannot be decoded, or
an event that cannot be encoded, is an error of that step: it stops the run, or, with
``on_error="skip"`` or ``"dead-letter"``, only the event.  A dead letter of a decoder holds the
payload.
"""

from wallaroo.serdes.avro import Avro
from wallaroo.serdes.changes import Change, Debezium, change_decoder
from wallaroo.serdes.csv import Csv, CsvLine
from wallaroo.serdes.json import Json
from wallaroo.serdes.messagepack import MessagePack
from wallaroo.serdes.protobuf import Protobuf
from wallaroo.serdes.registry import SchemaRegistry
from wallaroo.serdes.rows import row_decoder
from wallaroo.serdes.serde import Serde
from wallaroo.serdes.shape_errors import ShapeError

__all__ = [
    "Avro",
    "Change",
    "Csv",
    "CsvLine",
    "Debezium",
    "Json",
    "MessagePack",
    "Protobuf",
    "SchemaRegistry",
    "Serde",
    "ShapeError",
    "change_decoder",
    "row_decoder",
]
