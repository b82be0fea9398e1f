"""The decorators of vectorized steps, called with whole blocks of rows.

Where it runs: driver and workers, when the application's module is imported.

The annotation of a function's first argument determines the form of its rows: a numpy array, a
pyarrow RecordBatch, a pandas or polars DataFrame, or a list of events.  See docs/vectorized.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from wallaroo.api.decorators import check_on_error, decorated
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.kinds import STOP, Callback
from wallaroo.user_code.user_frames import user_place
from wallaroo.vectorized.fixed_layout import FixedLayout
from wallaroo.vectorized.steps import (
    BatchComputation,
    BatchDecoder,
    BatchEncoder,
    BatchKeyExtractor,
    BatchStateComputation,
)

A = TypeVar("A")
B = TypeVar("B")
FIX = "See docs/vectorized.md."
Row = dict[str, Any]  # a row with named columns, as per-event steps after a block see it


@overload
def batch_computation(name: Callable[[list[A]], list[B] | None], /) -> BatchComputation[A, B]: ...
@overload
def batch_computation(name: Callable[[Any], Any], /) -> BatchComputation[Any, Row]: ...
@overload
def batch_computation(
    name: str | None = None,
    *,
    on_error: str = STOP,
    batch: int | None = None,
    setup: Callable[[], Any] | None = None,
) -> Callable[[Callable[..., Any]], BatchComputation[Any, Any]]: ...
def batch_computation(
    name: Any = None,
    *,
    on_error: str = STOP,
    batch: int | None = None,
    setup: Callable[[], Any] | None = None,
) -> Any:
    """Turn a function of a block of rows into a step; its result is the output.

    A result with as many rows counts as one output per row.  If it has fewer or more rows, the
    function returns ``(rows, indexes)``, with the index of the source row of each output; this is
    required after ``key_by``, so that outputs keep their key.  ``None`` emits nothing.

    ``batch``: maximum rows per call.  ``setup``: called once per worker process, before the first
    block; its result, such as a model, is the function's second argument.
    """
    place = user_place()
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise _problem("batch_computation", place, f"batch={batch!r} is not a number of rows.")
    if setup is not None and not callable(setup):
        raise _problem("batch_computation", place, f"setup={setup!r} is not a function.")
    callback = None if setup is None else Callback(setup)
    return decorated(BatchComputation, name, on_error, fix=FIX, rows_max=batch, setup=callback)


class BatchStateDecorator(Protocol):
    """Decorator that turns a function into a BatchStateComputation.

    The function accepts ``(rows, at, states)``, or ``(rows, at, states, keys)``.
    """

    @overload
    def __call__(
        self, function: Callable[[list[A], Any, Any], list[B] | None], /
    ) -> BatchStateComputation[A, Any, B]: ...
    @overload
    def __call__(self, function: Callable[..., Any], /) -> BatchStateComputation[Any, Any, Row]: ...


def batch_state_computation(
    name: str | None = None,
    state: Any = None,
    *,
    initial: Sequence[Any] | None = None,
    on_error: str = STOP,
) -> BatchStateDecorator:
    """Turn a function of a block of rows and the states of their keys into a step.

    ``state`` is a numpy dtype with named fields; a key's state is one row of it, initially
    ``initial`` or zeros.  The function is called with ``(rows, at, states)``: ``states`` is an
    array of states, and ``at`` holds for each row the index of its key's state, so that
    ``states["bid"][at]`` reads the states, and ``states["bid"][at] = rows["bid"]`` writes each
    key's last value.  Changes are made in place, to ``states[at]`` only.  A fourth argument
    receives the keys of ``states``.

    ``state`` may be a class as well: ``states`` is then an array of its objects.
    """
    title = "batch_state_computation"
    place = user_place()
    if callable(name) or state is None:
        raise _problem(
            title,
            place,
            "needs the state's dtype.",
            f"Write @{title}(name='...', state=numpy.dtype([...])), or state=YourStateClass.",
        )
    is_class = isinstance(state, type)
    layout = None if is_class else _layout_of(state)
    if not is_class and layout is None:
        raise _problem(
            title,
            place,
            f"state={state!r} is neither a numpy dtype with named fields nor a class.",
            "Write state=numpy.dtype([('count', 'i8')]) or the like.",
        )
    names: Any = () if layout is None else layout.names
    if initial is not None and (is_class or len(initial) != len(names)):
        fix = "Give one value for each field of the dtype."
        raise _problem(title, place, f"initial={initial!r} has not a value per field.", fix)
    first = None if initial is None else tuple(initial)
    return decorated(  # type: ignore[no-any-return]  # a decorator, as declared
        BatchStateComputation,
        name,
        on_error,
        fix=FIX,
        state=state if is_class else dict,
        layout=layout,
        initial=first,
    )


@overload
def batch_key_extractor(name: Callable[[Any], Any], /) -> BatchKeyExtractor[Any, Any]: ...
@overload
def batch_key_extractor(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[Any], Any]], BatchKeyExtractor[Any, Any]]: ...
def batch_key_extractor(name: Any = None, *, on_error: str = STOP) -> Any:
    """Turn a function of a block of rows into a key extractor.

    The function returns a column of keys: str, bytes, int, or tuples of these.
    """
    return decorated(BatchKeyExtractor, name, on_error, fix=FIX)


@overload
def batch_decoder(header_length: Callable[[list[bytes]], Any], /) -> BatchDecoder[Any]: ...
@overload
def batch_decoder(
    header_length: int = 4, length_fmt: str = ">I", name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[list[bytes]], Any]], BatchDecoder[Any]]: ...
def batch_decoder(
    header_length: Any = 4, length_fmt: str = ">I", name: str | None = None, *, on_error: str = STOP
) -> Any:
    """Turn a function from many payloads to a block of rows into a decoder.

    ``wallaroo.fixed_layout``, ``json_lines`` and ``arrow_ipc`` are such decoders.
    """
    function = header_length if callable(header_length) else None
    length = header_length if function is None else 4
    options: dict[str, Any] = {"header_length": length, "length_fmt": length_fmt}
    decorate = decorated(BatchDecoder, name, on_error, fix=FIX, **options)
    return decorate if function is None else decorate(function)


@overload
def batch_encoder(name: Callable[[Any], Any], /) -> BatchEncoder[Any]: ...
@overload
def batch_encoder(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[Any], Any]], BatchEncoder[Any]]: ...
def batch_encoder(name: Any = None, *, on_error: str = STOP) -> Any:
    """Turn a function from a block of rows to an output per row into an encoder.

    The function returns a list of bytes or str, or an array; each output of a structured array is
    the bytes of a row's fields.
    """
    return decorated(BatchEncoder, name, on_error, fix=FIX)


def fixed_layout(
    dtype: Any,
    *,
    fields: Sequence[str] = (),
    name: str = "fixed layout",
    header_length: int = 4,
    length_fmt: str = ">I",
    on_error: str = STOP,
) -> BatchDecoder[Row]:
    """Return a decoder for payloads of one numpy dtype with named fields.

    A run of frames becomes an array without a copy.  ``fields``: the fields to keep; others are
    neither copied nor sent to other tasks.
    """
    place = user_place()
    fix = "Give a numpy dtype with named fields, as long as a payload."
    try:
        layout = np.dtype(dtype)
    except TypeError as error:
        raise _problem("fixed_layout", place, f"{dtype!r} is not a dtype ({error}).", fix) from None
    if not layout.names or layout.hasobject:
        raise _problem("fixed_layout", place, f"{layout} has no fields of a fixed length.", fix)
    unknown = [field for field in fields if field not in layout.names]
    if unknown:
        what = f"{', '.join(map(repr, unknown))} is not a field of the layout."
        fix = f"There are {', '.join(map(repr, layout.names))}."
        raise _problem("fixed_layout", place, what, fix)
    check_on_error("fixed_layout", on_error)
    function = FixedLayout(layout, tuple(fields))
    return BatchDecoder[Row](function, name, header_length, length_fmt, on_error)


def json_lines(
    schema: Any = None,
    *,
    name: str = "json lines",
    header_length: int = 4,
    length_fmt: str = ">I",
    on_error: str = STOP,
) -> BatchDecoder[Row]:
    """Return a decoder for JSON objects, one per frame or line: rows are pyarrow record batches.

    ``schema``, a pyarrow Schema, names the columns and their types.
    """
    from wallaroo.vectorized.json_lines import JsonLines, is_schema, unread

    if schema is not None and not is_schema(schema):
        what = f"Its schema is {schema!r:.60}, not one of pyarrow."
        fix = 'Write pyarrow.schema([("name", pyarrow.string()), ("size", pyarrow.int64())]).'
        raise _problem("json_lines", user_place(), what, fix)
    fields = unread(schema)
    if fields:
        what = f"Arrow reads no JSON as {', '.join(fields)}."
        fix = "Read the column as another type, such as string, and convert it in a step."
        raise _problem("json_lines", user_place(), what, fix)
    check_on_error("json_lines", on_error)
    return BatchDecoder[Row](JsonLines(schema), name, header_length, length_fmt, on_error)


def arrow_ipc(
    columns: Sequence[str] = (),
    *,
    name: str = "arrow ipc",
    header_length: int = 4,
    length_fmt: str = ">I",
    on_error: str = STOP,
) -> BatchDecoder[Row]:
    """Return a decoder for frames that are Arrow IPC streams, each of any number of rows."""
    from wallaroo.vectorized.arrow_ipc import ArrowIpc

    check_on_error("arrow_ipc", on_error)
    return BatchDecoder[Row](ArrowIpc(tuple(columns)), name, header_length, length_fmt, on_error)


def _layout_of(state: Any) -> Any:
    """Return ``state`` as a dtype with named fields; None if it is not one."""
    try:
        layout = np.dtype(state)
    except (TypeError, ValueError):
        return None
    return layout if layout.names else None


def _problem(decorator: str, place: str, what: str, fix: str = FIX) -> WallarooParameterError:
    return WallarooParameterError(Problem(f"@{decorator}", place, what, fix))
