"""Steps of the decorators of 2018, for ``ApplicationBuilder``.

Where it runs: driver, while an application is built, and workers.

A state computation of 2018 has a name only; its state is passed where the step is used.  It returns
``(output, save)``.
"""

from __future__ import annotations

from typing import Any

from wallaroo.steps.kinds import Step


class OldStateComputation(Step):
    """Function of an event and a state, which returns ``(output, save)``."""

    kind = "state computation without a state"
    arities = (2,)
    arity = 2

    def compute(self, data: Any, state: Any) -> Any:
        """Call the function."""
        return self.function(data, state)


class OldStateComputationMulti(Step):
    """State computation of 2018 with a list of outputs."""

    kind = OldStateComputation.kind
    arities = (2,)
    arity = 2

    def compute_multi(self, data: Any, state: Any) -> Any:
        """Call the function."""
        return self.function(data, state)


class Partition(Step):
    """Function that finds an event's partition."""

    kind = "partition"

    def partition(self, data: Any) -> Any:
        """Call the function."""
        return self.function(data)


class OfClass:
    """Builder of states of a class."""

    def __init__(self, state: type[Any]):
        self._state = state

    def build(self) -> Any:
        """Create a state."""
        return self._state()
