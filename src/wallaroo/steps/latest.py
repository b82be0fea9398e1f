"""The step ``latest_per_key``: each key's newest event of a batch."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from wallaroo.steps.kinds import Step

In = TypeVar("In", contravariant=True)


def _keep(event: Any) -> Any:
    """Stand in for the user's function, which this step does not have."""
    return event


class LatestPerKey(Step, Generic[In]):
    """Events of a batch in, the last one of each key out."""

    kind = "latest per key"
    is_computation = True
    needs_key = True

    def __init__(self, name: str, place: str = ""):
        super().__init__(_keep, name)
        self.own_place = place

    @property
    def place(self) -> str:
        """Return ``file:line`` where the user wrote the step."""
        return self.own_place

    def is_importable(self) -> bool:
        """Return False: the step is created on use."""
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return LatestPerKey, (self.step_name, self.own_place)
