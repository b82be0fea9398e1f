"""The step of windows in a pipeline."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from wallaroo.steps.kinds import STOP, Step
from wallaroo.steps.windows.aggregation import adds_up_exactly, fold_of, has_partial
from wallaroo.steps.windows.panes import Grid, may_add_up
from wallaroo.steps.windows.spec import RangeWindowSpec, SessionWindowSpec, WindowSpec
from wallaroo.user_code.references import importable_module, is_found, pickle_by_value, resolve

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class WindowStep(Step, Generic[In, Out]):
    """Windows over an aggregation: a key's events in, results out.

    There is a result per window.  ``given`` is the argument of ``over``: the aggregation's class,
    or an object of it.
    """

    kind = "windows"
    example = "def update(self, event, accumulator): ..."
    arities = (2,)
    is_computation = True
    is_stateful = True
    keeps_entries = True
    acts_at_end = True

    def __init__(
        self,
        spec: WindowSpec,
        given: Any,
        place: str = "",
        name: str | None = None,
        on_error: str = STOP,
        gives_late: bool = False,
        with_window: bool = False,
    ):
        self.spec = spec
        self.kept_for = spec
        self.given = given
        self.aggregation = made_of(given)
        self.state_class = given if inspect.isclass(given) else type(given)
        self.used_at = place
        self.gives_late = gives_late
        self.with_window = with_window  # results are ``WindowResult``
        self.watermark_lag_ns = _delay_of(spec)
        # whether events may be added up before the shuffle
        is_exact = adds_up_exactly(self.aggregation)
        # an event that is skipped is one, not all of an accumulator
        may_be_added_up = may_add_up(spec) and not gives_late and on_error == STOP
        self.adds_up = may_be_added_up and has_partial(self.aggregation)
        self.adds_up_rows = may_be_added_up and (is_exact or fold_of(self.aggregation) is not None)
        super().__init__(_called_by_windows, name or _name_of(self.aggregation), on_error)
        self.arity = 2
        self.__module__ = self.state_class.__module__
        self.__qualname__ = self.state_class.__qualname__
        self.__doc__ = self.state_class.__doc__

    def is_importable(self) -> bool:
        """Return False: windows are created where they are used, and pickled by value."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        packed = _packed(self.given)
        return rebuilt, (packed, self.spec, *self._options())

    def _options(self) -> tuple[Any, ...]:
        return self.used_at, self.step_name, self.on_error, self.gives_late, self.with_window

    def giving_late(self) -> WindowStep[In, Any]:
        """Return the same step, which emits late events as well (``windows.late``)."""
        place, name, on_error, _, with_window = self._options()
        return WindowStep(self.spec, self.given, place, name, on_error, True, with_window)


def rebuilt(packed: Any, spec: WindowSpec, *options: Any) -> WindowStep[Any, Any]:
    """Rebuild the step in the process that unpickles it."""
    return WindowStep(spec, packed(), *options)


class Aggregated:
    """An aggregation that is pickled with its step."""

    __slots__ = ("aggregation", "given")

    def __init__(self, given: Any):
        self.given = given
        self.aggregation = made_of(given)

    def __reduce__(self) -> tuple[Any, ...]:
        return _aggregated, (_packed(self.given),)


def _aggregated(packed: Any) -> Aggregated:
    return Aggregated(packed())


def _delay_of(spec: WindowSpec) -> int:
    """Return how long after its time a result is emitted."""
    if isinstance(spec, RangeWindowSpec):
        try:
            return Grid.of(spec).delay
        except (TypeError, ZeroDivisionError):
            return 0  # the build rejects such spans
    return spec.delay_ns if isinstance(spec, SessionWindowSpec) else 0


def _packed(given: Any) -> Callable[[], Any]:
    """Return a function that can be pickled, and returns an aggregation's class or object."""
    if inspect.isclass(given) and is_found(given):
        return partial(resolve, importable_module(given.__module__), given.__qualname__)
    return partial(pickle.loads, pickle_by_value(given))


def made_of(given: Any) -> Any:
    """Return the aggregation's object; the class itself if its call fails, as the checks report."""
    if not inspect.isclass(given):
        return given
    try:
        return given()
    except Exception:
        return given


def _name_of(aggregation: Any) -> str:
    if inspect.isclass(aggregation):
        return aggregation.__name__
    try:
        return str(aggregation.name())
    except Exception:
        return str(getattr(aggregation, "__name__", type(aggregation).__name__))


def _called_by_windows(event: Any, accumulator: Any) -> None:
    """Stand in for the aggregation's methods, which the window operator calls."""
