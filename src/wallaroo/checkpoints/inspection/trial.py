"""Trial of an application's state classes on every stored object; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.dataflow.plan.model import Plan
from wallaroo.dataflow.plan.schemas import evolving_steps
from wallaroo.engine.blocks.keys import decode_key
from wallaroo.engine.blocks.packing import Packing, packing_of
from wallaroo.engine.stores.evolution import evolving, lacking, stored_version
from wallaroo.engine.stores.last_use import without_last_use
from wallaroo.steps.state_versions import Evolution, version_of
from wallaroo.user_code.user_frames import user_frames

ERRORS_MAX = 5  # listed for each step

Progress = Callable[[int], None]  # called with the number of objects tried so far
PROGRESS_EVERY = 50_000


@dataclass(slots=True)
class Trial:
    """Counts of one step's stored objects by outcome, and the first errors."""

    step: str
    as_stored: int = 0
    filled: int = 0
    upgraded: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def objects(self) -> int:
        return self.as_stored + self.filled + self.upgraded + self.failed


class _Trier:
    """Trial of one step's state class."""

    def __init__(self, step: Any, packing: Packing, evolution: Evolution | None):
        self.trial = Trial(step.step_name)
        cls = step.state_class
        self._version = version_of(cls)
        self._dumps, self._loads = evolving(step, packing, evolution)
        self._lacks = lacking(step, packing)
        self._is_own = packing.loads is not packing_of(None).loads

    def try_on(self, key: bytes, raw: bytes) -> None:
        """Read one stored object as a run would, and pack it again."""
        trial = self.trial
        raw = without_last_use(raw) if self._is_own else raw
        try:
            self._dumps(self._loads(raw))
            if not self._is_own and stored_version(raw) != self._version:
                trial.upgraded += 1
            elif self._lacks(raw):
                trial.filled += 1
            else:
                trial.as_stored += 1
        except Exception as error:  # noqa: BLE001  # the error boundary of the user's code
            trial.failed += 1
            if len(trial.errors) < ERRORS_MAX:
                frames = user_frames(error.__traceback__)
                at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
                trial.errors.append(f"key {decode_key(key)!r}: {type(error).__name__}: {error}{at}")


def versions_in(root: Path, steps: Collection[str]) -> dict[str, set[int]]:
    """Return the versions of the stored objects of some steps, as of the newest commit."""
    versions: dict[str, set[int]] = {step: set() for step in steps}
    state = CheckpointReader(root).at()
    for group in range(state.groups):
        for (name, _), raw in state.group(group).items():
            if name in versions:
                versions[name].add(stored_version(raw))
    return versions


def try_state(root: Path, plan: Plan, progress: Progress = lambda count: None) -> list[Trial]:
    """Read every stored object of the newest commit as a run of the plan, which fits, would.

    Raises CheckpointError if the checkpoint cannot be read.
    """
    state = CheckpointReader(root).at()
    packing = packing_of(plan.serializer)
    triers = {
        name: _Trier(step, packing, plan.evolution.get(name))
        for name, step in evolving_steps(plan).items()
        if name in state.commit.steps
    }
    count = 0
    for group in range(state.groups):
        for (name, key), raw in state.group(group).items():
            if name not in triers:
                continue
            triers[name].try_on(key, raw)
            count += 1
            if count % PROGRESS_EVERY == 0:
                progress(count)
    return [trier.trial for trier in triers.values()]
