"""The step that windows are in a pipeline.

Where it runs: everywhere.
"""

from __future__ import annotations

import inspect
import pickle
from typing import Any, Generic, TypeVar

from wallaroo.steps import STOP, Step, importable_module, place_of, resolve
from wallaroo.windows.spec import DEAD_LETTER, RangeWindowSpec, SessionWindowSpec, WindowSpec

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class WindowStep(Step, Generic[In, Out]):
    """Windows over an aggregation: events of a key in, a result per window out.

    ``given`` is what the user gave to ``over``: the aggregation's class, or an object of it.
    """

    kind = "windows"
    example = "def update(self, event, accumulator): ..."
    arities = (2,)
    is_computation = True
    is_stateful = True
    keeps_entries = True
    acts_at_end = True

    def __init__(self, spec: WindowSpec, given: Any, place: str = "", on_error: str = STOP):
        self.spec = spec
        self.given = given
        self.on_error = on_error
        self.aggregation = made_of(given)
        self.function = getattr(self.aggregation, "update", _no_update)
        self.arity = 2
        self.step_name = _name_of(self.aggregation)
        self.state_class = given if inspect.isclass(given) else type(given)
        self._place = place or place_of(self.function)
        self.__module__ = self.state_class.__module__
        self.__qualname__ = self.state_class.__qualname__
        self.__doc__ = self.state_class.__doc__

    @property
    def place(self) -> str:
        """``file:line`` of the aggregation's ``update``, or of ``over``."""
        return self._place

    @property
    def writes_dead_letters(self) -> bool:
        """Whether late events go to the dead-letter sink."""
        spec = self.spec
        is_late = isinstance(spec, RangeWindowSpec | SessionWindowSpec)
        return is_late and spec.policy == DEAD_LETTER  # type: ignore[union-attr]  # of these two

    def is_importable(self) -> bool:
        """Windows are made where they are used, and travel by value."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, (self.spec, _packed(self.given), self._place, self.on_error)


def rebuilt(spec: WindowSpec, packed: Any, place: str, on_error: str) -> WindowStep[Any, Any]:
    """Make the step again where it arrives."""
    return WindowStep(spec, packed.unpack(), place, on_error)


class _ByReference:
    """An aggregation's class, under the name by which another process imports it."""

    def __init__(self, module: str, qualname: str):
        self.module = module
        self.qualname = qualname

    def unpack(self) -> Any:
        return resolve(self.module, self.qualname)


class _Pickled:
    """An aggregation's object, or a class that cannot be imported."""

    def __init__(self, content: bytes):
        self.content = content

    def unpack(self) -> Any:
        return pickle.loads(self.content)


def _packed(given: Any) -> Any:
    if inspect.isclass(given) and "<locals>" not in given.__qualname__:
        return _ByReference(importable_module(given.__module__), given.__qualname__)
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]  # only for what has no name

    return _Pickled(cloudpickle.dumps(given))


def made_of(given: Any) -> Any:
    """The aggregation's object; the class itself, if it cannot be made: the checks report that."""
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
        return type(aggregation).__name__


def _no_update(event: Any, accumulator: Any) -> None:
    """Stands where an aggregation has no ``update``."""
