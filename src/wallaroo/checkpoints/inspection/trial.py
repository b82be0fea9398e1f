"""Trial of classes and dtypes on every stored object; nothing is written.

Objects are states, accumulators, and entries with events that wait.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.keyed import PIECE_KINDS, step_of
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.dataflow.plan.model import PANES, Plan
from wallaroo.dataflow.plan.schemas import evolving_steps
from wallaroo.dataflow.plan.timing import steps_with_layout
from wallaroo.engine.blocks.keys import decode_key
from wallaroo.engine.blocks.ordered_keys import split_entry, split_pane
from wallaroo.engine.blocks.packing import Packing, packing_of
from wallaroo.engine.levels.stages import row_reader
from wallaroo.engine.stores.evolution import evolving, lacking, lacking_all, stored_version
from wallaroo.engine.stores.last_use import without_last_use
from wallaroo.engine.stores.sorted_state import ENTRIES
from wallaroo.steps.state_versions import Evolution, version_of
from wallaroo.steps.windows.entries import SLOT_BYTES
from wallaroo.user_code.user_frames import user_frames

ERRORS_MAX = 5  # listed for each step

Progress = Callable[[int], None]  # called with the number of objects tried so far
PROGRESS_EVERY = 50_000
_PICKLE = b"\x80\x05"  # what begins so within an entry are events of a join


class _Completeness(pickle.Pickler):
    """A pickler that refuses objects without a value for a declared field."""

    def reducer_override(self, value: Any) -> Any:
        """Raise AttributeError if a field is missing; else leave the object to pickle."""
        for name in _declared(type(value)):
            if not hasattr(value, name):
                raise AttributeError(f"{type(value).__qualname__} has no stored value for '{name}'")
        return NotImplemented


def _declared(cls: Any) -> tuple[str, ...]:
    """Return the fields that every object of a class has, unless it omits some from pickles."""
    getstate = getattr(cls, "__getstate__", None)
    if getattr(getstate, "__module__", None) == cls.__module__:
        return ()
    of_dataclass = fields(cls) if is_dataclass(cls) else ()
    parts = (*of_dataclass, *getattr(cls, "__attrs_attrs__", ()))
    return (*(each.name for each in parts if each.init), *getattr(cls, "__pydantic_fields__", ()))


def _require_complete(value: Any) -> None:
    _Completeness(io.BytesIO(), 5).dump(value)


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
        self._may_lack = evolution is not None and evolution.may_lack
        self._lacks = lacking(step, packing)
        self._lacks_all = lacking_all(step, packing)
        self._is_own = packing.loads is not packing_of(None).loads

    def try_on(self, key: bytes, raw: bytes) -> None:
        """Read one stored object as a run would, and pack it again."""
        trial = self.trial
        raw = without_last_use(raw) if self._is_own else raw
        try:
            state = self._loads(raw)
            if not self._is_own and not self._lacks_all(state):
                _require_complete(state)
            self._dumps(state)
            if not self._is_own and stored_version(raw) != self._version:
                trial.upgraded += 1
            elif self._may_lack and self._lacks(raw):
                trial.filled += 1
            elif not self._is_own and self._lacks_all(state):
                raise AttributeError("it has none of the attributes of a new object")
            else:
                trial.as_stored += 1
        except Exception as error:  # noqa: BLE001  # the error boundary of the user's code
            note_failure(trial, f"key {decode_key(key)!r}", error)


def note_failure(trial: Trial, what: str, error: Exception) -> None:
    """Count an object that cannot be read; list the first ones."""
    trial.failed += 1
    if len(trial.errors) < ERRORS_MAX:
        frames = user_frames(error.__traceback__)
        at = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        trial.errors.append(f"{what}: {type(error).__name__}: {error}{at}")


class _EntryTrier:
    """Trial load of a step's accumulators and buffered events."""

    def __init__(self, trial: Trial, packing: Packing, *, has_pieces: bool):
        self.trial = trial
        self._loads = packing.loads
        self._is_own = packing.loads is not packing_of(None).loads
        self._has_pieces = has_pieces

    def try_on(self, kind: str, stored_key: bytes, value: bytes) -> None:
        """Read one entry, and the events in it that are packed by themselves."""
        if kind == PANES:
            encoded, raw = split_pane(stored_key, value, SLOT_BYTES)
        else:
            encoded, _, raw = split_entry(stored_key, value)
        try:
            self._try_value(raw)
            self.trial.as_stored += 1
        except Exception as error:  # noqa: BLE001  # the error boundary of the user's code
            # a piece has rows of many keys
            where = "waiting events" if self._has_pieces else f"key {decode_key(encoded)!r}"
            note_failure(self.trial, where, error)

    def _try_value(self, raw: bytes) -> None:
        entry = self._loads(raw)
        if not self._is_own:
            _require_complete(entry)
        for part in entry if type(entry) is tuple else ():
            if type(part) is bytes and part.startswith(_PICKLE):
                self._try_value(part)


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
    """Read every stored object of the newest commit as a run of the fitting plan would.

    Raises CheckpointError if the checkpoint cannot be read.
    """
    state = CheckpointReader(root).at()
    packing = packing_of(plan.serializer)
    triers = {
        name: _Trier(step, packing, plan.evolution.get(name))
        for name, step in evolving_steps(plan).items()
        if name in state.commit.steps
    }
    of_entries: dict[str, _EntryTrier] = {}
    steps = {step.step_name: step for step in plan.steps}
    count = 0
    for group in range(state.groups):
        for (name, key), raw in state.group(group).items():
            step, kind = step_of(name)
            if name in triers:
                triers[name].try_on(key, raw)
            elif kind in (ENTRIES, PANES) and step in steps:
                if step not in of_entries:
                    trial = triers[step].trial if step in triers else Trial(step)
                    has_pieces = steps[step].kind in PIECE_KINDS
                    of_entries[step] = _EntryTrier(trial, packing, has_pieces=has_pieces)
                of_entries[step].try_on(kind, key, raw)
            else:
                continue
            count += 1
            if count % PROGRESS_EVERY == 0:
                progress(count)
    trials = {name: trier.trial for name, trier in of_entries.items()}
    trials |= {name: trier.trial for name, trier in triers.items()}
    return [trials[name] for name in steps if name in trials]


def try_rows(root: Path, plan: Plan) -> list[Trial]:
    """Read every stored row of the newest commit as a run of the plan would.

    Raises CheckpointError if the checkpoint cannot be read.
    """
    steps = steps_with_layout(plan)
    if not steps:
        return []
    state = CheckpointReader(root).at()
    packing = packing_of(plan.serializer)
    readers = {
        name: row_reader(step.layout, packing)
        for name, step in steps.items()
        if name in state.commit.steps
    }
    trials = {name: Trial(name) for name in readers}
    for group in range(state.groups):
        for (name, key), raw in state.group(group).items():
            if name not in trials:
                continue
            trial = trials[name]
            try:
                is_whole = readers[name](raw)
                trial.as_stored += is_whole
                trial.filled += not is_whole
            except Exception as error:  # noqa: BLE001  # also that of the application's serializer
                note_failure(trial, f"key {decode_key(key)!r}", error)
    return list(trials.values())
