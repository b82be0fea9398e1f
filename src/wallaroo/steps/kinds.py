"""Steps: frozen values with a user's function and its calling convention.

A step is pickled by reference (``references.py``) if it can be imported; functions defined inside
other functions are pickled by value.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import update_wrapper
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, overload

from wallaroo.steps.context import Context
from wallaroo.steps.keys import Key
from wallaroo.steps.times import EARLIEST_NS
from wallaroo.user_code.closures import note_captured
from wallaroo.user_code.references import importable_module, is_found, pickle_by_value, resolve
from wallaroo.user_code.signatures import takes_third
from wallaroo.user_code.user_frames import PACKAGE

In = TypeVar("In", contravariant=True)  # a step may accept more than it receives
Out = TypeVar("Out", covariant=True)
S = TypeVar("S")
K = TypeVar("K", bound=Key, covariant=True)

STOP = "stop"
SKIP = "skip"
DEAD_LETTER = "dead-letter"
ON_ERROR = (STOP, SKIP, DEAD_LETTER)  # the policies for an event whose function raises


def place_of(function: Callable[..., Any]) -> str:
    """Return ``file:line`` of a function's definition, or ``""`` if Python does not know it."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _of_function(cls: Any, module: str, qualname: str, options: tuple[Any, ...]) -> Any:
    return cls(resolve(module, qualname), *options)


def _by_value(cls: Any, function: bytes, options: tuple[Any, ...]) -> Any:
    return cls(pickle.loads(function), *options)


class Step:
    """A user's function with its name and source location."""

    kind: ClassVar[str] = "step"
    example: ClassVar[str] = "def {name}(event): ..."  # the form of its function
    arities: ClassVar[tuple[int, ...]] = (1,)  # numbers of arguments that its function may have
    is_computation: ClassVar[bool] = False  # whether ``to`` accepts it
    is_stateful: ClassVar[bool] = False
    # whether it keeps ordered entries and due times (``engine.stores.operator_state``); such a step
    # is also ``is_stateful``
    keeps_entries: bool = False
    # whether it needs all events of a key in one task, as a state step does
    needs_key: ClassVar[bool] = False
    side: int | None = None  # the side of a join, its only addition to events
    watermark_lag_ns: int = 0  # how far the watermark passes a result's time before it is emitted
    uses_time: ClassVar[bool] = False  # whether it needs event times
    acts_at_end: bool = False  # whether it acts when all input has ended
    has_expiring_state: bool = False
    expires_by_event_time: bool = False  # applies if its state expires
    may_generate: ClassVar[bool] = False  # whether its function may be a generator
    kept_for: object = None  # part of the state's identity: another value means another state
    takes_blocks: ClassVar[bool] = False  # whether its function is called with many rows at once

    arity: int = 1  # the number of arguments with which its function is called

    function: Callable[..., Any]
    step_name: str
    on_error: str  # one of ON_ERROR
    # where the user uses a function of this package, or created the step; empty for their own
    used_at: str = ""

    def __init__(self, function: Callable[..., Any], name: str | None = None, on_error: str = STOP):
        self.function = function
        self.on_error = on_error
        self.step_name = (
            name if name is not None else getattr(function, "__name__", type(function).__name__)
        )
        self.__module__ = getattr(function, "__module__", "__main__")
        self.__qualname__ = getattr(function, "__qualname__", self.step_name)
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function
        note_captured(function)

    def name(self) -> str:
        """Return the step's name, verbatim as the user wrote it."""
        return self.step_name

    @property
    def place(self) -> str:
        """Return ``file:line`` of the user's function, or of the line that uses one of ours."""
        return self.used_at or place_of(self.function)

    @property
    def is_users(self) -> bool:
        """Return whether the function is the user's, not one of this package."""
        module = getattr(self.function, "__module__", None) or type(self.function).__module__
        return module.partition(".")[0] != PACKAGE

    def used(self, place: str) -> Self:
        """Return the step as used at a place of the user's; user functions have their own."""
        if self.is_users or not place:
            return self
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, used_at=place)
        # instead of the step's
        copy.__qualname__ = getattr(self.function, "__qualname__", self.step_name)
        return copy

    def __call__(self, *args: Any) -> Any:
        """Call the plain function with the arguments; without any, return the step itself.

        So ``.to(f())`` is ``.to(f)``, as in Wallaroo.
        """
        return self.function(*args) if args else self

    def __repr__(self) -> str:
        return f"<{self.kind} '{self.step_name}' {self.place}>"

    def options(self) -> tuple[Any, ...]:
        """Return the constructor's arguments after the function, for pickling by value."""
        return (self.step_name, self.on_error)

    def is_importable(self) -> bool:
        """Return whether another process finds this very step under its module and name."""
        return is_found(self)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_importable():
            return resolve, (importable_module(self.__module__), self.__qualname__)
        used = ({"used_at": self.used_at},) if self.used_at else ()
        if is_found(self.function):
            module = importable_module(self.__module__)
            return _of_function, (type(self), module, self.__qualname__, self.options()), *used
        return _by_value, (type(self), pickle_by_value(self.function), self.options()), *used


class WrappedStep(Step):
    """A step of this package around ``inner``, one of the user's.

    Name and place are the user's.

    A subclass is created with ``inner`` and the other arguments of `_take_over`.
    """

    inner: Step

    def _take_over(self, inner: Step, *arguments: Any) -> None:
        """Let checks see the user's function and its parameters."""
        update_wrapper(self.function, inner.function, updated=())
        self.inner = inner
        self._arguments = (inner, *arguments)
        self.__wrapped__ = inner.function
        self.__module__ = inner.__module__
        self.__qualname__ = inner.__qualname__
        self.__doc__ = inner.__doc__

    def __reduce__(self) -> tuple[Any, ...]:
        used = ({"used_at": self.used_at},) if self.used_at else ()
        return type(self), self._arguments, *used

    @property
    def place(self) -> str:
        return self.used_at or self.inner.place

    @property
    def is_users(self) -> bool:
        return self.inner.is_users


class Computation(Step, Generic[In, Out]):
    """One event in, one out; ``None`` filters."""

    kind = "computation"
    is_computation = True

    @overload
    def __call__(self) -> Computation[In, Out]: ...
    @overload
    def __call__(self, data: In, /) -> Out | None: ...
    def __call__(self, *args: Any) -> Any:
        return self.function(*args) if args else self

    def compute(self, data: In) -> Out | None:
        """Run the user's function."""
        return self.function(data)  # type: ignore[no-any-return]  # the user's value


class ComputationMulti(Step, Generic[In, Out]):
    """One event in, a list out.

    ``[]`` or ``None`` emits nothing, ``None`` items are dropped.
    """

    kind = "computation_multi"
    is_computation = True
    may_generate = True

    @overload
    def __call__(self) -> ComputationMulti[In, Out]: ...
    @overload
    def __call__(self, data: In, /) -> list[Out] | None: ...
    def __call__(self, *args: Any) -> Any:
        return self.function(*args) if args else self

    def compute_multi(self, data: In) -> list[Out] | None:
        """Run the user's function."""
        return self.function(data)  # type: ignore[no-any-return]  # the user's value


class Filter(Step, Generic[In]):
    """One event in, passed on unchanged if the function returns true."""

    kind = "filter"
    is_computation = True


class Branch(Step, Generic[In]):
    """One event in, routed one of two ways by the function's result."""

    kind = "branch"


class Peek(Step, Generic[In]):
    """One event in, passed on unchanged after a call of the function."""

    kind = "peek"
    is_computation = True


def receipt_time(event: object) -> int:
    """Mark that an event's time is its receipt time, which the runtime knows."""
    raise NotImplementedError


class EventTime(Step, Generic[In]):
    """Assignment of times to events.

    ``extractor`` returns an event's time; if it is None, the time is that of the event's receipt.
    Times and spans are nanoseconds.
    """

    kind = "event_time"
    is_computation = True
    uses_time = True

    def __init__(
        self,
        function: Callable[..., Any] = receipt_time,
        name: str | None = None,
        on_error: str = STOP,
        delay_ns: int = 0,
        idle_after_ns: int | None = None,
        max_ahead_ns: int = 0,
        earliest_ns: int = EARLIEST_NS,
    ):
        super().__init__(function, name, on_error)
        self.delay_ns = delay_ns
        self.idle_after_ns = idle_after_ns
        self.max_ahead_ns = max_ahead_ns
        self.earliest_ns = earliest_ns

    @property
    def extractor(self) -> Callable[..., Any] | None:
        """Return the user's function, or None if there is none."""
        return None if self.function is receipt_time else self.function

    def tolerant(self) -> EventTime[In]:
        """Return the same step, except that it skips an event instead of stopping the run.

        It is for events that their source should not have sent, which must not end a run.
        """
        name, on_error, *rest = self.options()
        return type(self)(self.function, name, SKIP if on_error == STOP else on_error, *rest)

    def options(self) -> tuple[Any, ...]:
        return (
            self.step_name,
            self.on_error,
            self.delay_ns,
            self.idle_after_ns,
            self.max_ahead_ns,
            self.earliest_ns,
        )


class Callback:
    """An additional function of a step."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __reduce__(self) -> tuple[Any, ...]:
        function: Any = self.function
        if is_found(function):
            module = importable_module(function.__module__)
            return _of_function, (Callback, module, function.__qualname__, ())
        return _by_value, (Callback, pickle_by_value(function), ())


@dataclass(frozen=True, slots=True)
class Timing:
    """A state step's calls that time triggers, not an event.

    Spans are in nanoseconds.
    """

    on_timer: Callback | None = None
    on_end: Callback | None = None
    on_expire: Callback | None = None
    ttl_ns: int | None = None
    ttl_is_event_time: bool = False


NO_TIMING = Timing()


class StateBuilder(Protocol):
    """Factory of a step's state objects, if that is not their class."""

    def build(self) -> Any:
        """Return a new state object."""

    def content_of(self, stored: Any) -> Any:
        """Return the state of a stored object, which may have an older form."""


class _Stateful(Step, Generic[S]):
    example = "def {name}(event, state): ..."
    arities = (2, 3)
    is_computation = True
    is_stateful = True
    state_class: type[S]
    takes_context: bool  # whether its function is called with a Context as well

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        state: type[S],
        on_error: str = STOP,
        timing: Timing = NO_TIMING,
        builder: StateBuilder | None = None,
    ):
        super().__init__(function, name, on_error)
        self.state_class = state
        self.timing = timing
        self.builder = builder
        self.takes_context = takes_third(function, "context")
        self.arity = 3 if self.takes_context else 2

    def initial_state(self) -> S:
        """Return a new state object, as the first event of a key meets it."""
        return state_maker(self)()  # type: ignore[no-any-return]  # the user's object

    @property
    def keeps_entries(self) -> bool:  # type: ignore[override]  # depends on what is declared
        return self.timing.on_timer is not None or self.timing.ttl_ns is not None

    @property
    def acts_at_end(self) -> bool:  # type: ignore[override]  # depends on what is declared
        return self.timing.on_end is not None

    @property
    def has_expiring_state(self) -> bool:  # type: ignore[override]  # depends on what is declared
        return self.timing.ttl_ns is not None

    @property
    def expires_by_event_time(self) -> bool:  # type: ignore[override]  # depends on what is declared
        return self.timing.ttl_is_event_time

    def options(self) -> tuple[Any, ...]:
        rest: tuple[Any, ...] = () if self.timing == NO_TIMING else (self.timing,)
        if self.builder is not None:
            rest = (self.timing, self.builder)
        return (self.step_name, self.state_class, self.on_error, *rest)

    def on_timer(
        self, function: Callable[[S, Context, str], Any]
    ) -> Callable[[S, Context, str], Any]:
        """Decorate the function that is called when a timer is due.

        The timer's name is its third argument; its result is treated as that of the step's own
        function.
        """
        self.timing = replace(self.timing, on_timer=Callback(function))
        return function

    def on_end(self, function: Callable[[S, Context], Any]) -> Callable[[S, Context], Any]:
        """Decorate the function that is called for each key when all input has ended."""
        self.timing = replace(self.timing, on_end=Callback(function))
        return function


def state_maker(step: Step) -> Callable[[], Any]:
    """Return the function that creates a step's state objects: its class, or its builder's.

    Steps that keep nothing but ordered entries have no state class.
    """
    builder: StateBuilder | None = getattr(step, "builder", None)
    return getattr(step, "state_class", object) if builder is None else builder.build


class StateComputation(_Stateful[S], Generic[In, S, Out]):
    """One event and its key's state in, one event out.

    The state is mutated in place; ``None`` filters.
    """

    kind = "state_computation"

    @overload
    def __call__(self) -> StateComputation[In, S, Out]: ...
    @overload
    def __call__(self, data: In, state: S, context: Context = ..., /) -> Out | None: ...
    def __call__(self, *args: Any) -> Any:
        return self.function(*args) if args else self

    def compute(self, data: In, state: S, *context: Context) -> Out | None:
        """Run the user's function."""
        return self.function(data, state, *context)  # type: ignore[no-any-return]  # the user's value


class StateComputationMulti(_Stateful[S], Generic[In, S, Out]):
    """One event and its key's state in, a list out."""

    kind = "state_computation_multi"
    may_generate = True

    @overload
    def __call__(self) -> StateComputationMulti[In, S, Out]: ...
    @overload
    def __call__(self, data: In, state: S, context: Context = ..., /) -> list[Out] | None: ...
    def __call__(self, *args: Any) -> Any:
        return self.function(*args) if args else self

    def compute_multi(self, data: In, state: S, *context: Context) -> list[Out] | None:
        """Run the user's function."""
        return self.function(data, state, *context)  # type: ignore[no-any-return]  # the user's value


class KeyExtractor(Step, Generic[In, K]):
    """One event in, its key out.

    Keys are str, bytes, int, or tuples of these.
    """

    kind = "key_extractor"

    @overload
    def __call__(self) -> KeyExtractor[In, K]: ...
    @overload
    def __call__(self, data: In, /) -> K: ...
    def __call__(self, *args: Any) -> Any:
        return self.function(*args) if args else self

    def extract_key(self, data: In) -> K:
        """Run the user's function."""
        return self.function(data)  # type: ignore[no-any-return]  # the user's value


class Decoder(Step, Generic[Out]):
    """A frame's payload (bytes) in, one event out; ``None`` drops the message.

    ``header_length`` is 1 to 8 bytes; ``length_fmt`` is the ``struct`` format that reads the
    payload's length from them.  ``is_pure`` states that decoding a payload again returns the same
    event and does nothing else: then the undecoded payload may be sent to the task of the event's
    key and decoded there.  ``key_place`` states that the event's key is this half-open range of the
    payload; ``key_of`` is a function that reads the key from the payload: with either, the payload
    is not decoded before it is sent.
    """

    kind = "decoder"
    example = "def {name}(payload): ..."

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None = None,
        header_length: int = 4,
        length_fmt: str = ">I",
        on_error: str = STOP,
        is_pure: bool = False,
        key_place: tuple[int, int] | None = None,
        key_of: Callable[[bytes], Any] | None = None,
    ):
        super().__init__(function, name, on_error)
        self._header_length = header_length
        self._length_fmt = length_fmt
        self.is_pure = is_pure
        self.key_place = key_place
        self.key_of = key_of

    @property
    def quick(self) -> Callable[[Any], Any]:
        """Return a function that decodes as ``function`` does; its errors may be of any kind."""
        codec = getattr(self.function, "__self__", None)
        quick: Callable[[Any], Any] | None = getattr(codec, "quick", None)
        return self.function if quick is None else quick

    @property
    def has_key_place(self) -> bool:
        """Return whether an event's key is known before it is decoded."""
        return self.key_place is not None or self.key_of is not None

    @property
    def length_fmt(self) -> str:
        return self._length_fmt

    def header_length(self) -> int:
        """Return the number of bytes before every payload."""
        return self._header_length

    def payload_length(self, header: bytes) -> int:
        """Return the payload's length as the header states it."""
        return int(struct.unpack(self._length_fmt, header)[0])

    def options(self) -> tuple[Any, ...]:
        return (self.step_name, self._header_length, self._length_fmt, self.on_error, self.is_pure)

    def decode(self, payload: bytes) -> Out | None:
        """Run the user's function."""
        return self.function(payload)  # type: ignore[no-any-return]  # the user's value


class Encoder(Step, Generic[In]):
    """One event in, its encoded form for the sink out.

    That is ``bytes``, ``str`` (sent as UTF-8), or a value that its sink writes, such as a row.
    ``None`` writes nothing.
    """

    kind = "encoder"
    # instead of a call for each row of a record batch: returns an output for each; raises if the
    # rows are to be encoded one by one
    encode_block: Callable[[Any], list[bytes]] | None = None
    # outputs of this type need no conversion; others that are not None become bytes
    output_type: type = bytes

    def encode(self, data: In) -> Any:
        """Run the user's function."""
        return self.function(data)

    def pack_all(self, outputs: list[Any]) -> list[bytes]:
        """Return the staged form of a task's outputs, one for each."""
        return outputs


OctetDecoder = Decoder
"""``Decoder``, as Wallaroo named it."""
OctetEncoder = Encoder
"""``Encoder``, as Wallaroo named it."""
