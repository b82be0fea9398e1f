"""What mypy makes of an application.  Not run: tests/typing/test_typing.py checks each line against
its comment.

``# T: type`` is the type that mypy reveals on the line, ``# E: code`` an error it must find there.
"""

from __future__ import annotations

from typing import Any, TypeGuard, reveal_type

import numpy as np
import numpy.typing as npt

import wallaroo
from wallaroo.aggregations import Count
from wallaroo.sources import KafkaRecord


class Total:
    count = 0


@wallaroo.decoder
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.decoder(header_length=2, length_fmt=">H")
def decode_number(payload: bytes) -> int | None:
    return int(payload)


@wallaroo.decoder
def decode_record(record: KafkaRecord) -> int:
    return record.offset


@wallaroo.decoder(pure=True)
def decode_key(record: KafkaRecord) -> bytes | None:
    return record.key


reveal_type(decode_record)  # T: Decoder[int]
reveal_type(decode_key)  # T: Decoder[bytes]


@wallaroo.decoder  # E: arg-type
def decode_text(text: str) -> str:
    return text


@wallaroo.computation
def length(text: str) -> int:
    return len(text)


@wallaroo.computation(name="some of them")
def positive(number: int) -> float | None:
    return float(number) if number > 0 else None


@wallaroo.computation_multi(name="split")
def split(text: str) -> list[str]:
    return text.split()


@wallaroo.computation
def show(thing: object) -> str:
    return str(thing)


@wallaroo.key_extractor
def word(text: str) -> str:
    return text


@wallaroo.key_extractor
def parity(number: int) -> int:
    return number % 2


@wallaroo.state_computation(name="count", state=Total)
def count(text: str, total: Total) -> tuple[str, int] | None:
    total.count += 1
    return text, total.count


@wallaroo.state_computation_multi(state=Total)
def repeat(text: str, total: Total) -> list[bytes]:
    return [text.encode()] * total.count


@wallaroo.state_computation(name="count to", state=Total)
def count_to(text: str, total: Total, context: wallaroo.Context) -> int | None:
    if total.count > len(str(context.key)):
        context.drop_state()
    return total.count


@wallaroo.state_computation_multi(state=Total)
def repeat_with(text: str, total: Total, context: wallaroo.Context) -> list[float]:
    context.drop_state(1)  # E: call-arg
    return [1.5]


@wallaroo.encoder
def encode(counted: tuple[str, int]) -> bytes:
    return repr(counted).encode()


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode_untyped(payload):  # E: no-untyped-def
    return payload


class Counting:
    def initial_value(self) -> int:
        return 0

    def apply(self, previous: int) -> int | None:
        return previous + 1


class Pairing:
    def initial_value(self) -> tuple[str, int] | None:
        return None

    def apply(self, value: tuple[str, int]) -> tuple[str, int] | None:
        return value


class UntypedCounting:
    def initial_value(self):  # E: no-untyped-def
        return 0

    def apply(self, v):  # E: no-untyped-def
        return v + 1


def port_of(config: wallaroo.TCPSourceConfig) -> int:
    return int(config.port)


lines = wallaroo.source("lines", wallaroo.TCPSourceConfig("lines", "127.0.0.1", 0, decode))
numbers = wallaroo.source("numbers", wallaroo.TCPSourceConfig("numbers", "", "0", decoder=decode_number, max_size=100))
untyped = wallaroo.source("untyped", wallaroo.TCPSourceConfig("untyped", "", 0, decode_untyped))

class Longest(wallaroo.Aggregation[str, list[str], bytes]):
    def initial_accumulator(self) -> list[str]:
        return [""]

    def update(self, event: str, longest: list[str], /) -> None:
        longest[0] = max(longest[0], event, key=len)

    def combine(self, left: list[str], right: list[str], /) -> list[str]:
        return max(left, right, key=lambda one: len(one[0]))

    def output(self, key: object, longest: list[str], /) -> bytes:
        return longest[0].encode()


reveal_type(lines)  # T: Pipeline[str]
reveal_type(numbers)  # T: Pipeline[int]
reveal_type(untyped)  # T: Pipeline[Any]
# T: Pipeline[str]
reveal_type(wallaroo.source("file", wallaroo.FileSourceConfig("file", "in.txt")))
# T: Pipeline[str]
reveal_type(wallaroo.source("file", wallaroo.FileSourceConfig("file", "in.txt", skip_empty=True)))
# T: Pipeline[int]
reveal_type(wallaroo.source("file", wallaroo.FileSourceConfig("file", "in.msg", decode_number, "frames")))
# T: Pipeline[int]
reveal_type(wallaroo.source("counted", wallaroo.GenSourceConfig("counted", Counting())))
# T: Pipeline[tuple[str, int]]
reveal_type(wallaroo.source("pairs", wallaroo.GenSourceConfig("pairs", Pairing())))
# T: Pipeline[Any]
reveal_type(wallaroo.source("counted", wallaroo.GenSourceConfig("counted", UntypedCounting())))
reveal_type(port_of(wallaroo.TCPSourceConfig("lines", "", 0, decode)))  # T: int

reveal_type(decode)  # T: Decoder[str]
reveal_type(decode_number)  # T: Decoder[int]
reveal_type(length)  # T: Computation[str, int]
reveal_type(positive)  # T: Computation[int, float]
reveal_type(split)  # T: ComputationMulti[str, str]
reveal_type(parity)  # T: KeyExtractor[int, int]
reveal_type(count)  # T: StateComputation[str, Total, tuple[str, int]]
reveal_type(repeat)  # T: StateComputationMulti[str, Total, bytes]
reveal_type(count_to)  # T: StateComputation[str, Total, int]
reveal_type(repeat_with)  # T: StateComputationMulti[str, Total, float]
reveal_type(lines.key_by(word).to(count_to))  # T: KeyedPipeline[str, int]
reveal_type(encode)  # T: Encoder[tuple[str, int]]
reveal_type(length("abc"))  # T: int | None
reveal_type(length())  # T: Computation[str, int]

reveal_type(lines.to(length))  # T: Pipeline[int]
reveal_type(lines.to(split).to(length).to(positive))  # T: Pipeline[float]
reveal_type(lines.to(show))  # T: Pipeline[str]
reveal_type(lines.map(len))  # T: Pipeline[int]
reveal_type(lines.map(len).filter(lambda size: size > 3).peek(print))  # T: Pipeline[int]
reveal_type(lines.flat_map(str.split))  # T: Pipeline[str]
reveal_type(lines.map(lambda text: (text, len(text))))  # T: Pipeline[tuple[str, int]]
reveal_type(lines.key_by(word).map(len))  # T: KeyedPipeline[str, int]
reveal_type(lines.key_by(word).filter(bool))  # T: KeyedPipeline[str, str]
reveal_type(lines.key_by(word))  # T: KeyedPipeline[str, str]
reveal_type(lines.key_by(word).to(count))  # T: KeyedPipeline[str, tuple[str, int]]
reveal_type(lines.key_by(word).to(length).key_by(parity))  # T: KeyedPipeline[int, int]
reveal_type(lines.key_by(word).to(repeat))  # T: KeyedPipeline[str, bytes]
# T: KeyedPipeline[str, bytes]
reveal_type(lines.key_by(word).to(wallaroo.range_windows(1).with_slide(1).over(Longest)))
# T: KeyedPipeline[str, bytes]
reveal_type(lines.key_by(word).to(wallaroo.session_windows(1).over(Longest())))
windowed = lines.key_by(word).to(wallaroo.range_windows(1).over(Longest))
# T: tuple[KeyedPipeline[str, bytes], KeyedPipeline[str, Any]]
reveal_type(windowed.with_late_events())
# T: KeyedPipeline[str, tuple[str | None, str | None]]
reveal_type(lines.key_by(word).join_windows(lines.key_by(word), wallaroo.range_windows(1)))
reveal_type(lines.key_by(lambda text: text[0]))  # T: KeyedPipeline[str, str]
reveal_type(lines.key_by(len))  # T: KeyedPipeline[int, str]
# T: KeyedPipeline[tuple[str, int], str]
reveal_type(lines.key_by(lambda text: (text[0], len(text))))
# T: KeyedPipeline[str, tuple[Any, bytes, Window, fallback=WindowResult[bytes]]]
reveal_type(lines.key_by(word).to(wallaroo.count_windows(3).over(Longest, with_window=True)))
# T: WindowStep[Any, tuple[Any, Any, Window, fallback=WindowResult[Any]]]
reveal_type(wallaroo.range_windows(1).over(Count().where(len), with_window=True))
# T: KeyedPipeline[str, tuple[str | None, str | None]]
reveal_type(lines.key_by(word).join(lines.key_by(word), within=None))
# T: KeyedPipeline[str, tuple[str, Any | None]]
reveal_type(lines.key_by(word).join(lines.key_by(word), until=len, over=Count()))
reveal_type(lines.key_by(word).latest_per_key())  # T: KeyedPipeline[str, str]
reveal_type(lines.key_by(word).in_order())  # T: KeyedPipeline[str, str]
reveal_type(lines.collect())  # T: KeyedPipeline[str, str]
reveal_type(lines.merge(numbers))  # T: Pipeline[str | int]
reveal_type(lines.merge(numbers).to(show))  # T: Pipeline[str]
# T: KeyedPipeline[str | int, str | int]
reveal_type(lines.key_by(word).merge(numbers.key_by(parity)))
reveal_type(lines.key_by(word).merge(numbers))  # T: Pipeline[str | int]
reveal_type(lines.key_by(word).to_sink(wallaroo.StdoutSinkConfig()))  # T: Pipeline[str]
# T: Application
reveal_type(wallaroo.build_application("typed", lines.to_sink(wallaroo.StdoutSinkConfig())))
reveal_type(wallaroo.seconds(3))  # T: int

wallaroo.TCPSourceConfig("lines", "", 0, encode)  # E: arg-type
wallaroo.GenSourceConfig("generated", Total())  # E: arg-type
wallaroo.source("pairs", wallaroo.GenSourceConfig("pairs", Pairing())).to(length)  # E: arg-type
lines.to(count)  # E: call-overload
numbers.map(len)  # E: arg-type
lines.filter(chr)  # E: arg-type
lines.to(count_to)  # E: call-overload
lines.to(positive)  # E: arg-type
numbers.key_by(word)  # E: arg-type
lines.key_by(length)  # E: type-var
lines.key_by(lambda text: 1.5)  # E: type-var
lines.to(decode)  # E: call-overload
lines.key_by(word).to(positive)  # E: arg-type
lines.to(wallaroo.count_windows(3).over(Longest))  # E: call-overload
lines.key_by(word).to(length).to(wallaroo.count_windows(3).over(Longest))  # E: arg-type
lines.to_sink("127.0.0.1:7002")  # E: arg-type
wallaroo.build_application("typed", lines.to_sinks)  # E: arg-type
wallaroo.source("lines", "127.0.0.1:7010")  # E: arg-type

application = wallaroo.build_application("typed", lines.to_sink(wallaroo.StdoutSinkConfig()))
reveal_type(wallaroo.run(application, tasks=3).result())  # T: RunStatus
wallaroo.run(application, taks=3)  # E: call-arg
wallaroo.run(application, tasks="3")  # E: arg-type


# Vectorized steps: rows with named columns are dicts to the per-event steps after them; functions
# of lists keep their types.
Columns = npt.NDArray[np.float64]


@wallaroo.batch_computation
def scaled(rows: Columns) -> Columns:
    return rows * 2


@wallaroo.batch_computation
def lengths(rows: list[str]) -> list[int]:
    return [len(row) for row in rows]


@wallaroo.batch_computation("scored", setup=Total, batch=16)
def scored(rows: Columns, model: Total) -> Columns:
    return rows


@wallaroo.batch_key_extractor
def keys(rows: Columns) -> Columns:
    return rows


@wallaroo.batch_state_computation("summed", state=[("sum", "f8")])
def summed(rows: Columns, at: Columns, states: Columns) -> Columns:
    return rows


@wallaroo.computation
def price_of(row: dict[str, Any]) -> float:
    return float(row["price"])


@wallaroo.batch_encoder
def written(rows: Columns) -> list[bytes]:
    return []


@wallaroo.batch_decoder
def many(payloads: list[bytes]) -> Columns:
    return np.zeros(len(payloads))


layout = wallaroo.fixed_layout([("price", "f8")])
reveal_type(layout)  # T: BatchDecoder[dict[str, Any]]
reveal_type(scaled)  # T: BatchComputation[Any, dict[str, Any]]
reveal_type(lengths)  # T: BatchComputation[str, int]
reveal_type(summed)  # T: BatchStateComputation[Any, Any, dict[str, Any]]
blocks = wallaroo.source("blocks", wallaroo.TCPSourceConfig("blocks", "localhost", 0, layout))
reveal_type(blocks)  # T: Pipeline[dict[str, Any]]
reveal_type(blocks.to(scaled))  # T: Pipeline[dict[str, Any]]
reveal_type(blocks.to(scaled).to(price_of))  # T: Pipeline[float]
reveal_type(blocks.to(scored))  # T: Pipeline[Any]
reveal_type(blocks.key_by(keys).to(summed))  # T: KeyedPipeline[Any, dict[str, Any]]
blocks.to(lengths)  # E: arg-type
blocks.to(summed)  # E: call-overload
reveal_type(blocks.to(price_of).to(scaled))  # T: Pipeline[dict[str, Any]]
wallaroo.TCPSinkConfig("localhost", 1, written)
wallaroo.source("many", wallaroo.TCPSourceConfig("many", "localhost", 0, many))


def is_text(event: str | int) -> TypeGuard[str]:
    return isinstance(event, str)


def is_long(text: str) -> bool:
    return len(text) > 3


texts, others = lines.merge(numbers).branch(is_text)
reveal_type(texts)  # T: Pipeline[str]
reveal_type(others)  # T: Pipeline[str | int]
long_ones, short_ones = lines.key_by(word).branch(is_long)
reveal_type(long_ones)  # T: KeyedPipeline[str, str]
reveal_type(short_ones.to(count))  # T: KeyedPipeline[str, tuple[str, int]]
numbers.branch(is_long)  # E: arg-type
reveal_type(lines.key_by(word).batch(10))  # T: KeyedPipeline[str, list[str]]
output = wallaroo.StdoutSinkConfig()
wallaroo.build_application("both", texts.to_sink(output), long_ones.to_sink(output))
