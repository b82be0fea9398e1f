"""``Aggregation``: the base class of users' window aggregations.

Subclasses are the user's.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from wallaroo.errors import Problem, WallarooParameterError
from wallaroo.steps.windows.spec import Window
from wallaroo.user_code.mutability import cannot_change
from wallaroo.user_code.signatures import takes_third
from wallaroo.user_code.user_frames import user_place

In = TypeVar("In", contravariant=True)
Acc = TypeVar("Acc")
Out = TypeVar("Out", covariant=True)
OURS = "wallaroo."
METHODS = {"initial_accumulator": 0, "update": 2, "combine": 2, "output": 2}
_PLAIN = frozenset({bool, int, float, str, bytes, type(None), date, datetime, timedelta, Decimal})


def wrong_option(aggregation: str, what: str, fix: str) -> WallarooParameterError:
    """Return the error for an option of an aggregation, with the user's line."""
    return WallarooParameterError(Problem(aggregation, user_place(), what, fix))


class Aggregation(Generic[In, Acc, Out]):
    """Base class of window aggregations: all four methods are the subclass's own.

    >>> class Total(Aggregation[int, int, int]):
    ...     def initial_accumulator(self) -> int:
    ...         return 0
    ...     def update(self, event: int, accumulator: int) -> int:
    ...         return accumulator + event
    ...     def combine(self, left: int, right: int) -> int:
    ...         return left + right
    ...     def output(self, key: object, accumulator: int) -> int:
    ...         return accumulator
    >>> total = Total()
    >>> total.output("a", total.update(2, total.initial_accumulator()))
    2
    """

    # Whether ``combine`` is associative to the last digit: for example for integers, not for
    # floats. Then events may be pre-aggregated where they are read, and accumulators are shuffled.
    adds_up_exactly: bool = False
    is_of_order: bool = False  # the result is made of the order of events, whatever they are

    def name(self) -> str:
        """Return the step's name in errors, metrics and checkpoints: the class's."""
        return type(self).__name__

    def initial_accumulator(self) -> Acc:
        """Return a new, empty accumulator; ``combine`` with it changes nothing."""
        raise NotImplementedError

    def update(self, event: In, accumulator: Acc, /) -> Acc | None:
        """Add an event: change the accumulator in place and return None, or return the new one."""
        raise NotImplementedError

    def combine(self, left: Acc, right: Acc, /) -> Acc:
        """Return the accumulator of both parts' events, ``left`` being the earlier ones.

        It must be associative and change neither; it may return one of them.
        """
        raise NotImplementedError

    def output(self, key: Any, accumulator: Acc, /) -> Out | None:
        """Return the window's result; None emits nothing.

        It must not change the accumulator.

        Written with a third argument, ``output(self, key, accumulator, window)``, it also receives
        the ``Window``: its bounds, and the reason it fires.
        """
        raise NotImplementedError

    def where(self, predicate: Callable[[Any], object]) -> Aggregation[In, Acc, Out]:
        """Return the same aggregation over the events for which the predicate is true.

        Windows are the same as without it: one in which no event counts has the result of an empty
        accumulator.
        """
        given: Any = predicate
        if not callable(given):
            what = f"where() was given {given!r:.60}, not a function."
            fix = "Give it a function of one event, such as lambda event: event.price > 9."
            raise wrong_option("an aggregation", what, fix)
        return Filtered(self, predicate)


class Fold(NamedTuple):
    """The kind of an aggregation whose accumulators can be computed from columns.

    ``parts`` are the folds of several aggregations computed at once.
    """

    kind: str
    column: str | None = None
    parts: tuple[Fold, ...] = ()


COUNT = "count"  # accumulators: an int
SUM = "sum"  # a number
MEAN = "mean"  # [count, sum]
LEAST = "least"  # [the value], as of all kinds below
GREATEST = "greatest"
COMBINED = "combined"  # a list of the parts' accumulators


def fold_of(aggregation: Any) -> Fold | None:
    """Return the fold that a class declares as ``_fold``; None if there is none.

    A subclass does not inherit it, as it may override methods.
    """
    kind = vars(type(aggregation)).get("_fold") if is_ours(type(aggregation)) else None
    if kind == COMBINED:
        parts = tuple(map(fold_of, aggregation.parts.values()))
        known = tuple(part for part in parts if part is not None)
        return Fold(kind, None, known) if len(known) == len(parts) else None
    column = getattr(aggregation, "column", None)
    return Fold(kind, column) if kind == COUNT or (kind and column is not None) else None


Output = Callable[[Any, Any, Window], Any]


class Partial(NamedTuple):
    """An aggregation's calls for part of a pane's events before a shuffle.

    Accumulators of ``initial`` and ``update`` may differ from the aggregation's own. ``whole``
    converts one to the latter and may change its argument; ``absorb`` adds one to the latter and
    may change both.  ``events_min``: with fewer events per accumulator, it costs more than it saves
    (measured).  ``is_ordered``: the result depends on the order of events.
    """

    initial: Callable[[], Any]
    update: Callable[[Any, Any], Any]
    whole: Callable[[Any], Any]
    absorb: Callable[[Any, Any], Any]
    events_min: int = 3
    is_ordered: bool = True


class Alone:
    """An event that could not be aggregated in part, among others' accumulators."""

    __slots__ = ("_packed",)

    def __init__(self, event: Any):
        self._packed = pickle.dumps(event, 5)

    @property
    def event(self) -> Any:
        """Return the event as it was."""
        return pickle.loads(self._packed)


@dataclass(frozen=True, slots=True)
class BoundAggregation:
    """An aggregation's methods, bound.  ``output`` always accepts the window.

    ``absorb`` combines as ``combine`` does, and may change the left accumulator.  ``partial`` is
    None if events have to cross a shuffle one by one.
    """

    initial: Callable[[], Any]
    update: Callable[[Any, Any], Any]
    combine: Callable[[Any, Any], Any]
    output: Output
    absorb: Callable[[Any, Any], Any]
    partial: Partial | None = None


def as_it_is(value: Any) -> Any:
    """Return the value unchanged, such as a partial accumulator that is a whole one."""
    return value


def kept(value: Any) -> Any:
    """Return a snapshot of a value: itself if immutable, else a copy."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    fields = _fields_of_frozen(kind)
    if fields is not None and _PLAIN.issuperset(map(type, fields(value))):
        return value
    return pickle.loads(pickle.dumps(value, 5))


def as_result(value: Any) -> Any:
    """Return a window's result, to which no accumulator refers if it can change."""
    try:
        return kept(value)
    except Exception:  # only pickle rejects it: no accumulator has it, or no step changes it
        return value


@lru_cache(maxsize=256)
def _fields_of_frozen(kind: Any) -> Callable[[Any], Iterable[Any]] | None:
    """Return a getter of the fields of immutable objects, or None."""
    if issubclass(kind, tuple):
        return None if kind.__dictoffset__ else as_it_is
    config = vars(kind).get("__dataclass_params__", getattr(kind, "__struct_config__", None))
    if not getattr(config, "frozen", False):
        return None
    names = getattr(kind, "__dataclass_fields__", getattr(kind, "__struct_fields__", ()))
    return attrgetter(*names) if len(names) > 1 else None


def partial_of_values(
    of: Callable[[Any], Any], add: Callable[[Any, Any], None], initial: Callable[[], Any]
) -> Partial:
    """Return calls whose partial accumulators are values, added in order.

    ``of`` returns an event's value, or raises if ``add`` would.
    """

    def update(event: Any, values: list[Any]) -> None:
        values.append(kept(of(event)))

    def absorb(accumulator: Any, values: list[Any]) -> Any:
        for value in values:
            add(accumulator, value)
        return accumulator

    return Partial(list, update, lambda values: absorb(initial(), values), absorb, events_min=16)


def calls_of(aggregation: Any, *, is_checked: bool = False) -> BoundAggregation:
    """Bind an aggregation's methods.

    ``is_checked``: an event that an aggregation of this package cannot add fails in ``update``, not
    in the result, and leaves the accumulator as it was.
    """
    if type(aggregation) is Filtered:
        whole = calls_of(aggregation.whole, is_checked=is_checked)
        predicate = aggregation.predicate
        partial = whole.partial
        if partial is not None:
            partial = partial._replace(update=_selecting(predicate, partial.update))
        return replace(whole, update=_selecting(predicate, whole.update), partial=partial)
    output = aggregation.output
    if not takes_third(output, "window"):
        output = _without_window(output)
    if not is_ours(_home_of(aggregation, "output")):
        output = _detached(output)
    combine = aggregation.combine
    home = _home_of(aggregation, "_absorb")
    has_absorb = is_ours(home) and home is _home_of(aggregation, "combine")
    absorb = aggregation._absorb if has_absorb else combine
    update = _update(aggregation)
    if is_checked and hasattr(aggregation, "checked_update"):
        home = _home_of(aggregation, "update")
        update = aggregation.checked_update() if is_ours(home) else update
    calls = BoundAggregation(_initial(aggregation), update, combine, output, absorb)
    return replace(calls, partial=_partial_of(aggregation, calls))


def _partial_of(aggregation: Any, calls: BoundAggregation) -> Partial | None:
    """Return the calls for a part of a pane's events; None if there are none."""
    partial = _declared_partial(aggregation)
    if partial is not None or not adds_up_exactly(aggregation):
        return partial
    has_own = not is_ours(_home_of(aggregation, "update"))
    is_ordered = has_own or not getattr(aggregation, "has_any_order", False)
    update = _of_copies(calls.update) if has_own else _with_copies(aggregation)
    return Partial(calls.initial, update, as_it_is, calls.absorb, is_ordered=is_ordered)


def _with_copies(aggregation: Any) -> Callable[[Any, Any], Any]:
    """Return an update whose accumulator keeps copies, since other steps may change events."""
    twin = copy.copy(aggregation)
    twin._keep = kept  # called for the values that an accumulator keeps
    return twin.update  # type: ignore[no-any-return]  # a bound method


def _of_copies(update: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda event, accumulator: update(kept(event), accumulator)


def adds_up_exactly(aggregation: Any) -> bool:
    """Return whether an aggregation is associative to the last digit.

    A subclass of one of this package's that overrides ``update`` does not inherit that.
    """
    if not getattr(aggregation, "adds_up_exactly", False):
        return False
    home = _home_of(aggregation, "adds_up_exactly")
    if "adds_up_exactly" in vars(aggregation) or not is_ours(home):
        return True
    methods = ("initial_accumulator", "update", "combine")
    return all(is_ours(_home_of(aggregation, method)) for method in methods)


def _declared_partial(aggregation: Any) -> Partial | None:
    """Return what an aggregation's ``_partial`` returns.

    A subclass that overrides ``update``, for example, does not inherit it.
    """
    methods = ("_partial", "initial_accumulator", "update", "combine")
    home, *others = (_home_of(aggregation, method) for method in methods)
    if not is_ours(home) or any(not is_ours(other) for other in others):
        return None
    partial: Partial | None = aggregation._partial()
    return partial


def has_partial(aggregation: Any) -> bool:
    """Return whether events may be aggregated before a shuffle, windows permitting."""
    if type(aggregation) is Filtered:
        return has_partial(aggregation.whole)
    return adds_up_exactly(aggregation) or _declared_partial(aggregation) is not None


def _selecting(
    predicate: Callable[[Any], object], update: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    return lambda event, accumulator: update(event, accumulator) if predicate(event) else None


def _home_of(aggregation: Any, method: str) -> type[Any] | None:
    """Return the class that defines a method, as a subclass may override it."""
    homes = (each for each in type(aggregation).__mro__ if method in vars(each))
    return next(homes, None)


def is_ours(home: type[Any] | None) -> bool:
    """Return whether a class is this package's."""
    return home is not None and home.__module__.startswith(OURS)


def _initial(aggregation: Any) -> Callable[[], Any]:
    """Return ``initial_accumulator``, not None, which by key means no accumulator."""
    make = aggregation.initial_accumulator

    def initial() -> Any:
        accumulator = make()
        if accumulator is None:
            raise TypeError(
                "initial_accumulator() returned None; return an empty accumulator, such as [] or 0"
            )
        return accumulator

    return initial


def _update(aggregation: Any) -> Callable[[Any, Any], Any]:
    """Return ``update``, which must return the accumulator if that cannot change in place.

    Aggregations of this package are not checked: theirs do, and the check costs a call per event.
    """
    update: Callable[[Any, Any], Any] = aggregation.update
    if is_ours(_home_of(aggregation, "update")):
        return update
    try:
        if not cannot_change(aggregation.initial_accumulator()):
            return update
    except Exception:  # the user's; it is raised where it is called for an event
        return update

    def checked(event: Any, accumulator: Any) -> Any:
        changed = update(event, accumulator)
        if changed is None:
            kind = type(accumulator).__name__
            raise TypeError(
                f"update() returned None, and its accumulator, {kind}, cannot be changed; "
                "return the new accumulator"
            )
        return changed

    return checked


def _without_window(output: Callable[[Any, Any], Any]) -> Output:
    return lambda key, accumulator, window: output(key, accumulator)


def _detached(output: Output) -> Output:
    return lambda key, accumulator, window: as_result(output(key, accumulator, window))


class Filtered(Aggregation[In, Acc, Out]):
    """An aggregation of some of the events (``Aggregation.where``)."""

    def __init__(self, whole: Aggregation[In, Acc, Out], predicate: Callable[[Any], object]):
        self.whole = whole
        self.predicate = predicate
        self.adds_up_exactly = adds_up_exactly(whole)
        self.is_of_order = getattr(whole, "is_of_order", False)
        self._calls = calls_of(whole)

    def __reduce__(self) -> tuple[Any, ...]:
        return Filtered, (self.whole, self.predicate)

    def name(self) -> str:
        return self.whole.name()

    def initial_accumulator(self) -> Any:
        return self._calls.initial()

    def update(self, event: Any, accumulator: Any, /) -> Any:
        return self._calls.update(event, accumulator) if self.predicate(event) else None

    def combine(self, left: Any, right: Any, /) -> Any:
        return self._calls.combine(left, right)

    def _absorb(self, left: Any, right: Any, /) -> Any:
        """Combine; the left accumulator may change."""
        return self._calls.absorb(left, right)

    def output(self, key: Any, accumulator: Any, window: Window | None = None, /) -> Any:
        return self._calls.output(key, accumulator, window or Window(0, 0))
