"""The decorators that turn functions into steps.

Where it runs: driver and workers, when the application's module is imported.

All work with and without parentheses, and a step's name defaults to its function's name.
``on_error`` decides what happens to an event for which the function raises: the run stops
(``"stop"``), the event is skipped and counted (``"skip"``), or it is written to the application's
dead-letter sink (``"dead-letter"``); see docs/errors.md.  The function stays reachable: as
``step.function``, through ``compute``, ``compute_multi``, ``extract_key``, ``decode``, ``encode``,
and by calling the step with arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from wallaroo.api import decorated as classic
from wallaroo.api.times import required_span
from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.context import Context
from wallaroo.steps.keys import Key
from wallaroo.steps.kinds import (
    ON_ERROR,
    STOP,
    Callback,
    Computation,
    ComputationMulti,
    Decoder,
    Encoder,
    KeyExtractor,
    StateComputation,
    StateComputationMulti,
    Step,
    Timing,
)
from wallaroo.steps.times import Span
from wallaroo.user_code.user_frames import user_place

if TYPE_CHECKING:
    from wallaroo.connectors.kafka.record import KafkaRecord

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")
K = TypeVar("K", bound=Key)


@overload
def computation(name: Callable[[A], B | None], /) -> Computation[A, B]: ...
@overload
def computation(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[A], B | None]], Computation[A, B]]: ...
def computation(name: Any = None, *, on_error: str = STOP) -> Any:
    """Turn a function of one event into a step: its result is the output, ``None`` filters."""
    return decorated(Computation, name, on_error)


@overload
def computation_multi(name: Callable[[A], list[B] | None], /) -> ComputationMulti[A, B]: ...
@overload
def computation_multi(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[A], list[B] | None]], ComputationMulti[A, B]]: ...
def computation_multi(name: Any = None, *, on_error: str = STOP) -> Any:
    """Turn a function of one event that returns a list of outputs into a step.

    ``[]`` and ``None`` emit nothing, ``None`` items are dropped.
    """
    return decorated(ComputationMulti, name, on_error)


class StateDecorator(Protocol[S]):
    """Decorator that turns a function into a StateComputation.

    The function accepts ``(event, state)``, or ``(event, state, context)``.
    """

    @overload
    def __call__(self, function: Callable[[A, S], B | None], /) -> StateComputation[A, S, B]: ...
    @overload
    def __call__(
        self, function: Callable[[A, S, Context], B | None], /
    ) -> StateComputation[A, S, B]: ...


class StateMultiDecorator(Protocol[S]):
    """Decorator that turns a function into a StateComputationMulti.

    The function accepts ``(event, state)``, or ``(event, state, context)``.
    """

    @overload
    def __call__(
        self, function: Callable[[A, S], list[B] | None], /
    ) -> StateComputationMulti[A, S, B]: ...
    @overload
    def __call__(
        self, function: Callable[[A, S, Context], list[B] | None], /
    ) -> StateComputationMulti[A, S, B]: ...


def state_computation(
    name: str | None = None,
    state: type[S] | None = None,
    *,
    on_error: str = STOP,
    ttl: Span | None = None,
    ttl_time: str = "processing",
    on_expire: Callable[[S, Context], Any] | None = None,
) -> StateDecorator[S]:
    """Turn a function of an event and its key's state into a step.

    The function changes the state in place.

    ``state`` is a class; one object per key is created without arguments when the key's first event
    arrives.  A function with a third argument receives a ``Context``: the event's key, times and
    timers, and ``drop_state()``.

    ``ttl``: how long a key's state is kept after its last event, as ``wallaroo.minutes(10)`` or a
    ``timedelta``, by the clock or, with ``ttl_time="event"``, by event time. ``on_expire`` is
    called with state and context before the state is dropped; its result is treated as that of the
    step's own function.
    """
    if state is None and isinstance(name, str):
        return decorated(classic.OldStateComputation, name, on_error, title="state_computation")  # type: ignore[no-any-return]  # what ApplicationBuilder takes
    state_class = _state_class("state_computation", name, state)
    timing = _timing("state_computation", ttl, ttl_time, on_expire)
    return decorated(StateComputation, name, on_error, state=state_class, timing=timing)  # type: ignore[no-any-return]  # a decorator, as declared


def state_computation_multi(
    name: str | None = None,
    state: type[S] | None = None,
    *,
    on_error: str = STOP,
    ttl: Span | None = None,
    ttl_time: str = "processing",
    on_expire: Callable[[S, Context], Any] | None = None,
) -> StateMultiDecorator[S]:
    """Turn a function of an event and its key's state into a step with a list of outputs.

    As with ``state_computation``, a third argument receives a ``Context``.
    """
    if state is None and isinstance(name, str):
        old = classic.OldStateComputationMulti
        return decorated(old, name, on_error, title="state_computation_multi")  # type: ignore[no-any-return]  # what ApplicationBuilder takes
    state_class = _state_class("state_computation_multi", name, state)
    timing = _timing("state_computation_multi", ttl, ttl_time, on_expire)
    return decorated(StateComputationMulti, name, on_error, state=state_class, timing=timing)  # type: ignore[no-any-return]  # a decorator, as declared


@overload
def key_extractor(name: Callable[[A], K], /) -> KeyExtractor[A, K]: ...
@overload
def key_extractor(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[A], K]], KeyExtractor[A, K]]: ...
def key_extractor(name: Any = None, *, on_error: str = STOP) -> Any:
    """Turn a function of one event into a key extractor.

    The key is a str, bytes, int, or a tuple of these.
    """
    return decorated(KeyExtractor, name, on_error)


class DecoderDecorator(Protocol):
    """A decorator of functions of a payload or a record with metadata."""

    @overload
    def __call__(self, function: Callable[[bytes], B | None], /) -> Decoder[B]: ...
    @overload
    def __call__(self, function: Callable[[KafkaRecord], B | None], /) -> Decoder[B]: ...


@overload
def decoder(header_length: Callable[[bytes], B | None], /) -> Decoder[B]: ...
@overload
def decoder(header_length: Callable[[KafkaRecord], B | None], /) -> Decoder[B]: ...
@overload
def decoder(
    header_length: int = 4,
    length_fmt: str = ">I",
    name: str | None = None,
    *,
    on_error: str = STOP,
    pure: bool = False,
    key_at: slice | Callable[[bytes], object] | None = None,
) -> DecoderDecorator: ...
def decoder(
    header_length: Any = 4,
    length_fmt: str = ">I",
    name: str | None = None,
    *,
    on_error: str = STOP,
    pure: bool = False,
    key_at: slice | Callable[[bytes], object] | None = None,
) -> Any:
    """Turn a function of a payload (bytes) into a decoder; ``None`` drops the message.

    Every payload has a header of ``header_length`` bytes (1 to 8), which ``length_fmt``, a
    ``struct`` format, reads as the payload's length.

    ``pure=True`` promises that decoding the same payload again returns an equal event and has no
    other effect.  Directly before ``key_by`` such a decoder may run twice for an event: the payload
    is sent to the key's task instead of the event, which is faster.  Without it, a decoder runs
    once for an event in every attempt of its batch.

    ``key_at=slice(12, 16)`` promises, for a pure decoder, that the key of its event is
    ``payload[12:16]``: bytes, equal to the result of the extractor of ``key_by``.  If the key is
    not always at the same place, ``key_at`` may be a pure function of the payload that returns the
    key.  Directly before ``key_by`` the decoder then runs once for an event, in the key's task.  In
    each batch and task the first event of every key is decoded to compare; a difference stops the
    run.
    """
    function = header_length if callable(header_length) else None
    place, read = _declared_key(pure, key_at)
    decorate = decorated(
        Decoder,
        name,
        on_error,
        header_length=header_length if function is None else 4,
        length_fmt=length_fmt,
        is_pure=pure,
        key_place=place,
        key_of=read,
    )
    return decorate if function is None else decorate(function)


def _declared_key(
    is_pure: bool, key_at: Any
) -> tuple[tuple[int, int] | None, Callable[[bytes], object] | None]:
    """Return the key's place in a payload, or its reader, or raise WallarooParameterError."""
    if key_at is None:
        return None, None
    if callable(key_at) and is_pure:
        return None, key_at
    begin, end = (key_at.start or 0, key_at.stop) if isinstance(key_at, slice) else (0, 0)
    is_whole = isinstance(begin, int) and isinstance(end, int)
    is_place = is_whole and 0 <= begin < end and key_at.step in (None, 1)
    if not is_place and not callable(key_at):
        what = f"key_at={key_at!r} is not a place in a payload."
        fix = (
            "Give the key's first byte and the one after its last: key_at=slice(12, 16), or a "
            "function of the payload that returns the key."
        )
    elif not is_pure:
        what = "key_at is for pure decoders, and this one is not declared pure."
        fix = (
            "Add pure=True if decoding a payload again gives an equal event and does nothing else."
        )
    else:
        return (int(begin), int(end)), None
    raise WallarooParameterError(Problem("@decoder", user_place(), what, fix))


@overload
def encoder(name: Callable[[A], object], /) -> Encoder[A]: ...
@overload
def encoder(
    name: str | None = None, *, on_error: str = STOP
) -> Callable[[Callable[[A], object]], Encoder[A]]: ...
def encoder(name: Any = None, *, on_error: str = STOP) -> Any:
    """Turn a function of one output into an encoder.

    The function returns bytes, or str (written as UTF-8), or an object that its sink writes, such
    as a row; ``None`` writes nothing.
    """
    return decorated(Encoder, name, on_error)


def check_on_error(title: str, on_error: Any) -> None:
    """Raise WallarooParameterError, a PipelineError, for an unknown policy."""
    if on_error not in ON_ERROR:
        what = f"on_error={on_error!r} is unknown."
        fix = f"Choose one of {', '.join(map(repr, ON_ERROR))}."
        raise WallarooParameterError(Problem(title, user_place(), what, fix))


def decorated(
    kind: type[Step],
    name: Any,
    on_error: Any,
    *,
    title: str = "",
    fix: str = "Put the decorator on a def.",
    **options: Any,
) -> Any:
    """Return the step of a decorator's function, or the decorator if it was called with a name.

    ``title`` is the decorator's name, by default the step kind's; ``options`` are further arguments
    of the step's class.
    """
    title = f"@{title or kind.kind}"
    check_on_error(title, on_error)
    make: Callable[..., Step] = partial(kind, on_error=on_error, **options)
    if callable(name):
        return make(name, None)
    if name is not None and not isinstance(name, str):
        raise _rejected(title, name, fix)

    def decorate(function: Any) -> Step:
        if not callable(function):
            raise _rejected(title, function, fix)
        return make(function, name)

    return decorate


def _rejected(title: str, given: Any, fix: str) -> WallarooParameterError:
    what = f"expected a function, got {given!r}."
    return WallarooParameterError(Problem(title, user_place(), what, fix))


def _timing(
    decorator: str, ttl: Any, ttl_time: Any, on_expire: Callable[..., Any] | None
) -> Timing:
    what = ""
    if ttl is not None:
        ttl = required_span(f"@{decorator}", user_place(), "ttl", ttl, 1)
    if ttl_time not in ("processing", "event"):
        what = f'ttl_time={ttl_time!r} is unknown: it is "processing" or "event".'
    elif ttl is None and on_expire is not None:
        what = "on_expire is given without ttl, so nothing ever expires."
    if what:
        fix = "See docs/time.md, 'State that expires'."
        raise WallarooParameterError(Problem(f"@{decorator}", user_place(), what, fix))
    return Timing(
        on_expire=None if on_expire is None else Callback(on_expire),
        ttl_ns=ttl,
        ttl_is_event_time=ttl is not None and ttl_time == "event",
    )


def partition(function: Callable[[Any], Any]) -> classic.Partition:
    """Turn a function into a partition for ``ApplicationBuilder``; `key_extractor` is newer."""
    if not callable(function):
        raise _rejected("@partition", function, "Put the decorator on a def.")
    return classic.Partition(function)


def _state_class(decorator: str, name: Any, state: type[S] | None) -> type[S]:
    if callable(name) or state is None:
        fix = f"Write @{decorator}(name='...', state=YourStateClass)."
        raise WallarooParameterError(
            Problem(f"@{decorator}", user_place(), "needs the state's class.", fix)
        )
    return state
