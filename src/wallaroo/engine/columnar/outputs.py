"""Exits of blocks from a stage: to an exchange or to sinks.

Blocks go into an exchange's buckets, or are encoded for sinks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from wallaroo.dataflow.plan.model import COLLECT_KEY, Plan, Stage, ToExchange, ToSinks
from wallaroo.engine.columnar.calls import Calls, given_as, keys_by
from wallaroo.engine.columnar.exchange import ColumnExchange
from wallaroo.engine.columnar.forms import as_arrow
from wallaroo.engine.columnar.keys import Keys, same_key
from wallaroo.engine.columnar.operators import exploding
from wallaroo.engine.columnar.packing import layout_of, packed_rows
from wallaroo.engine.columnar.rows import Rows, count_of, form_of_rows
from wallaroo.engine.exchange.outputs import emit_encoded, emit_to_all
from wallaroo.engine.failures.policies import OnError
from wallaroo.engine.operators.interface import Emit
from wallaroo.engine.operators.outputs import as_bytes
from wallaroo.engine.stages.event_stages import PASS_THROUGH, producer_of
from wallaroo.engine.stages.stage_builder import Policy
from wallaroo.steps.kinds import Encoder, Step
from wallaroo.vectorized.row_error import RowErrors
from wallaroo.vectorized.steps import BatchEncoder, BatchKeyExtractor, Form

# forms whose values are the same in a record batch (pandas does not tell null from NaN)
PACKED = (Form.ARROW, Form.NUMPY, Form.POLARS)


def block_output(
    plan: Plan,
    stage: Stage,
    exchange: ColumnExchange | None,
    outputs: dict[int, list[bytes]],
    policy: Policy,
) -> Emit:
    """Return the closure that emits blocks from the stage."""
    leave = stage.exit
    if isinstance(leave, ToSinks):
        return emit_to_all(
            [_to_sink(plan, stage, sink, outputs[sink], policy) for sink in leave.sinks]
        )
    assert isinstance(leave, ToExchange)  # branches receive events
    assert exchange is not None
    producer = producer_of(plan, stage)
    put = _putting(exchange, producer, policy(producer))
    if isinstance(leave.extractor, BatchKeyExtractor):
        return _by_key(leave.extractor, put, policy(leave.extractor))
    return put if leave.keeps_key else _collected(put)


def _putting(exchange: ColumnExchange, producer: Step, failed: OnError) -> Emit:
    calls = Calls(producer, failed)

    def put(keys: Any, rows: Rows) -> None:
        exchange.put(keys, rows)

    def process(keys: Any, rows: Rows) -> None:
        for _ in calls(keys, rows, put):
            pass  # put returns nothing

    return process


def _by_key(extractor: BatchKeyExtractor[Any, Any], put: Emit, failed: OnError) -> Emit:
    keys_of = keys_by(extractor)
    calls = Calls(extractor, failed)

    def call(before: Keys | None, rows: Rows) -> tuple[Keys, Rows]:
        return keys_of(rows), rows

    def process(before: Any, rows: Rows) -> None:
        for done in calls(before, rows, call):
            put(*done)

    return process


def _collected(put: Emit) -> Emit:
    def process(before: Any, rows: Rows) -> None:
        put(same_key(COLLECT_KEY, count_of(rows)), rows)

    return process


def _to_sink(plan: Plan, stage: Stage, sink: int, outputs: list[bytes], policy: Policy) -> Emit:
    encoder: Encoder[Any] | None = plan.sinks[sink].encoder
    producer = producer_of(plan, stage)
    failed = policy(producer)
    if encoder is None:
        return exploding(emit_encoded(PASS_THROUGH, outputs, failed), producer, failed)
    if isinstance(encoder, BatchEncoder):
        return encoded(encoder, outputs.extend, policy(encoder))
    each = exploding(emit_encoded(encoder, outputs, policy(encoder)), producer, failed)
    if encoder.encode_block is None:
        return each
    return _packed(encoder.encode_block, outputs.extend, each)


def _packed(
    pack: Callable[[Any], list[bytes]], extend: Callable[[list[bytes]], None], each: Emit
) -> Emit:
    def process(keys: Any, rows: Rows) -> None:
        if form_of_rows(rows) not in PACKED:
            each(keys, rows)
            return
        try:
            outputs = pack(as_arrow(rows))
        except Exception:  # retried row by row: its policy applies to those that do not fit
            each(keys, rows)
        else:
            extend(outputs)

    return process


def encoded(
    encoder: BatchEncoder[Any], extend: Callable[[list[bytes]], None], failed: OnError
) -> Emit:
    encode = encoder.function
    form = encoder.form
    calls = Calls(encoder, failed)

    def call(keys: Keys | None, rows: Rows) -> list[bytes]:
        return outputs_of(encode(given_as(form, rows)), count_of(rows))

    def process(keys: Any, rows: Rows) -> None:
        for done in calls(keys, rows, call):
            extend(done)

    return process


def outputs_of(returned: Any, count: int) -> list[bytes]:
    """Return an encoder's result as one output per row, without those that are None.

    Raises TypeError or ValueError for any other result, RowErrors for rows whose outputs are wrong.
    """
    if returned is None:
        return []
    outputs = _listed(returned)
    if len(outputs) != count:
        raise ValueError(
            f"it returned {len(outputs)} outputs for {count} rows; return an output per row, or "
            "None for a row that has none"
        )
    if set(map(type, outputs)) == {bytes}:
        return outputs
    encoded: list[bytes] = []
    wrong: dict[int, Exception] = {}
    for at, output in enumerate(outputs):
        try:
            if output is not None:
                encoded.append(as_bytes(output))
        except (TypeError, ValueError) as error:
            wrong[at] = error
    if wrong:
        raise RowErrors(wrong)
    return encoded


def _listed(returned: Any) -> list[Any]:
    if isinstance(returned, np.ndarray):
        return _of_numpy(returned)
    if isinstance(returned, pa.ChunkedArray):
        returned = returned.combine_chunks()
    if isinstance(returned, pa.Array):
        return _of_arrow(returned)
    if isinstance(returned, (list, tuple)) or type(returned).__name__ == "Series":
        return list(returned)
    raise TypeError(
        f"an encoder of blocks returns a list of bytes or str, an array, or None, not "
        f"{type(returned).__name__}"
    )


def _of_arrow(returned: pa.Array) -> list[Any]:
    if returned.null_count or not (
        pa.types.is_string(returned.type) or pa.types.is_binary(returned.type)
    ):
        return list(returned.to_pylist())
    _, ends, content = returned.buffers()
    first = returned.offset
    places = np.frombuffer(ends, np.int32)[first : first + len(returned) + 1].tolist()
    whole = b"" if content is None else content.to_pybytes()
    return [whole[begin:end] for begin, end in pairwise(places)]


def _of_numpy(returned: np.ndarray[Any, Any]) -> list[Any]:
    if returned.dtype.names is not None:
        packed = packed_rows(returned, None)
        size = layout_of(returned.dtype).packed.itemsize
        return list(packed.view(f"V{size}").tolist())
    if returned.ndim == 2 and returned.dtype == np.uint8:
        rows = np.ascontiguousarray(returned)
        return list(rows.view(f"V{rows.shape[1]}").reshape(-1).tolist())
    if returned.dtype.kind in "SV":
        return list(returned.tolist())
    return list(returned.tolist())
