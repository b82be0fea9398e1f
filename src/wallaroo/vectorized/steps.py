"""Vectorized steps: functions that are called with a whole block of rows.

Nothing here needs numpy: a function's annotation declares the form of its rows.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from wallaroo.steps.keys import Key
from wallaroo.steps.kinds import (
    STOP,
    Callback,
    Computation,
    Decoder,
    Encoder,
    EventTime,
    KeyExtractor,
    StateComputation,
)

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
S = TypeVar("S")
K = TypeVar("K", bound=Key, covariant=True)


class Form(Enum):
    """Types of a block of rows, as functions receive them."""

    NUMPY = "numpy.ndarray"
    ARROW = "pyarrow.RecordBatch"
    PANDAS = "pandas.DataFrame"
    POLARS = "polars.DataFrame"
    LIST = "list"

    @property
    def library(self) -> str:
        """Return the module that must be installed; empty for Python's own."""
        return self.value.partition(".")[0] if "." in self.value else ""


_NAMES = {
    "ndarray": Form.NUMPY,
    "NDArray": Form.NUMPY,
    "RecordBatch": Form.ARROW,
    "list": Form.LIST,
    "List": Form.LIST,
}
_FRAMES = {"pd": Form.PANDAS, "pandas": Form.PANDAS, "pl": Form.POLARS, "polars": Form.POLARS}


def form_of(function: Callable[..., Any]) -> Form | None:
    """Return the form of rows that a function declares.

    Return None if the annotation of its first argument declares none.

    >>> def total(rows: list[int]) -> list[int]: ...
    >>> form_of(total)
    <Form.LIST: 'list'>
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    if not parameters:
        return None
    first = parameters[0]
    annotated = function if hasattr(function, "__annotations__") else type(function).__call__
    try:
        annotation = typing.get_type_hints(annotated).get(first.name, first.annotation)
    except Exception:  # noqa: BLE001  # a name that is imported for type checkers only: its text is read
        annotation = first.annotation
    return _form_in_text(annotation) if isinstance(annotation, str) else _form_of_type(annotation)


def _form_in_text(annotation: str) -> Form | None:
    path = annotation.partition("[")[0].strip()
    module, _, name = path.rpartition(".")
    if name == "DataFrame":
        return _FRAMES.get(module)
    return _NAMES.get(name)


def _form_of_type(annotation: Any) -> Form | None:
    origin = typing.get_origin(annotation) or annotation
    if not isinstance(origin, type):
        return None
    if origin.__name__ == "DataFrame":
        return _FRAMES.get(origin.__module__.partition(".")[0])
    return _NAMES.get(origin.__name__)


class BatchComputation(Computation[In, Out], Generic[In, Out]):
    """A block of rows in, a block out.

    ``rows_max`` limits the rows of one call.  The result of ``setup``, which is called once per
    process, is the function's second argument.
    """

    kind = "batch_computation"
    example = "def {name}(rows: numpy.ndarray): ..."
    takes_blocks = True

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        on_error: str = STOP,
        rows_max: int | None = None,
        setup: Callback | None = None,
    ):
        super().__init__(function, name, on_error)
        self.form = form_of(function)
        self.rows_max = rows_max
        self.setup = setup
        self.arity = 1 if setup is None else 2

    def options(self) -> tuple[Any, ...]:
        return (self.step_name, self.on_error, self.rows_max, self.setup)


class BatchStateComputation(StateComputation[In, S, Out], Generic[In, S, Out]):
    """A block of rows with their keys' states in, a block out.

    ``layout`` is a numpy dtype, and a key's state a row of it that begins as ``initial``; without a
    layout, a key's state is an object of ``state``.
    """

    kind = "batch_state_computation"
    example = "def {name}(rows: numpy.ndarray, at, states): ..."
    arities = (3, 4)
    takes_blocks = True

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        state: type[S],
        on_error: str = STOP,
        layout: Any = None,
        initial: Any = None,
    ):
        super().__init__(function, name, state, on_error)
        self.form = form_of(function)
        self.layout = layout
        self.initial = initial
        self.takes_context = False
        self.takes_keys = _positional(function) >= 4
        self.arity = 4 if self.takes_keys else 3

    def options(self) -> tuple[Any, ...]:
        return (self.step_name, self.state_class, self.on_error, self.layout, self.initial)


def _positional(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds for each in parameters)


class BatchKeyExtractor(KeyExtractor[In, K], Generic[In, K]):
    """A block of rows in, the column of their keys out."""

    kind = "batch_key_extractor"
    example = "def {name}(rows: numpy.ndarray): ..."
    takes_blocks = True

    def __init__(self, function: Callable[..., Any], name: str | None = None, on_error: str = STOP):
        super().__init__(function, name, on_error)
        self.form = form_of(function)


@dataclass(frozen=True, slots=True)
class Column:
    """A function from rows to a column by its name.

    The rows may be a dict or an object.
    """

    column: str

    def __call__(self, row: Any) -> Any:
        try:
            return row[self.column]
        except TypeError:
            return getattr(row, self.column)


class ColumnTime(EventTime[In], Generic[In]):
    """Assignment of times to rows, from a column named by its function."""

    takes_blocks = True

    @property
    def column(self) -> str:
        """Return the column's name."""
        assert isinstance(self.function, Column)
        return self.function.column


class BatchDecoder(Decoder[Out], Generic[Out]):
    """The payloads of many frames in, a block of rows out.

    A function may read frames as received, headers included: its ``count`` returns their number, or
    None if it needs payloads, and its ``rows`` returns the rows of counted frames, or None.
    ``payloads_max`` is the maximum payloads per call.
    """

    kind = "batch_decoder"
    example = "def {name}(payloads: list[bytes]): ..."
    takes_blocks = True


class BatchEncoder(Encoder[In], Generic[In]):
    """A block in, one output per row out, as list or array."""

    kind = "batch_encoder"
    example = "def {name}(rows: numpy.ndarray): ..."
    takes_blocks = True

    def __init__(self, function: Callable[..., Any], name: str | None = None, on_error: str = STOP):
        super().__init__(function, name, on_error)
        self.form = form_of(function)
