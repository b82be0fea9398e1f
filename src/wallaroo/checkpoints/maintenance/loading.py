"""Loading of a step's state from a table.

The checkpoint is new, or no run holds it.

The invariants: the load is a commit of its own with one delta, so it is atomic; it has no input and
no output, and positions do not change.  Nothing is written before every row is known to fit the
state class.  A key is in the group in which the engine would put it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from wallaroo.checkpoints.inspection.compatibility import check_compatibility, planned_key_groups
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.maintenance.editing import publish_edit, write_delta
from wallaroo.dataflow.plan.model import Plan
from wallaroo.dataflow.plan.schemas import evolving_steps
from wallaroo.engine.blocks.keys import Key, encode_key, group_of, normalize_key
from wallaroo.engine.blocks.packing import packing_of
from wallaroo.engine.stores.evolution import evolving
from wallaroo.errors import CheckpointError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.state.checkpoint import Checkpoint, open_checkpoint
from wallaroo.state.log.delta import Entry
from wallaroo.steps.kinds import StateComputation, StateComputationMulti, state_maker
from wallaroo.user_code.stored_fields import fields_of

MERGE = "merge"
REPLACE = "replace"
PROGRESS_ROWS = 100_000
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """Number of keys that were loaded, and the commit that has them."""

    commit: int
    keys: int


class Rows:
    """Rows of a table as keys and state objects of a step."""

    def __init__(self, plan: Plan, step: str, keys: Sequence[str]):
        steps = {
            name: each
            for name, each in evolving_steps(plan).items()
            if isinstance(each, StateComputation | StateComputationMulti)
        }
        if step not in steps:
            names = ", ".join(f"'{name}'" for name in steps) or "none"
            raise CheckpointError(
                f"step '{step}' keeps no state objects that can be loaded. Steps that do: {names}."
            )
        self._step = steps[step]
        if self._step.has_expiring_state:
            raise CheckpointError(
                f"the state of step '{step}' expires, and a table does not say when it was used "
                f"last. Let events create it, or take the expiry away."
            )
        self._keys = tuple(keys)
        self._class = self._step.state_class
        self._types = _types_of(self._step)
        self._dumps = evolving(self._step, packing_of(plan.serializer), None)[0]

    def entry(self, number: int, row: Row) -> tuple[Key, bytes]:
        """Return a row's key and packed state.  Raises CheckpointError if it does not fit."""
        missing = [name for name in self._keys if name not in row]
        if missing:
            raise CheckpointError(
                f"the table has no column '{missing[0]}' for the key. Its columns: "
                f"{', '.join(row)}."
            )
        try:
            parts = tuple(row[name] for name in self._keys)
            key = normalize_key(parts if len(parts) > 1 else parts[0])
        except TypeError:
            raise CheckpointError(
                f"row {number:,} has {parts!r} for a key; keys are str, bytes or int."
            ) from None
        state = state_maker(self._step)()
        for name, value in row.items():
            if name in self._types:
                setattr(state, name, self._converted(number, name, value))
            elif name not in self._keys:
                raise CheckpointError(
                    f"column '{name}' is not an attribute of {self._class.__name__}, which has "
                    f"{', '.join(self._types) or 'none'}. Leave it out of the table."
                )
        return key, self._dumps(state)

    def _converted(self, number: int, name: str, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._types[name])
        except (msgspec.ValidationError, TypeError) as error:
            raise CheckpointError(
                f"row {number:,}, column '{name}': {value!r} does not fit "
                f"{self._class.__name__}.{name}: {error}. Nothing was loaded."
            ) from error


def _types_of(step: Any) -> dict[str, Any]:
    """Return the types of a state object's attributes: declared, else those of a new object."""
    try:
        hints = get_type_hints(step.state_class)
    except (NameError, TypeError):
        hints = {}
    types = {
        name: Any if value is None else type(value)
        for name, value in fields_of(state_maker(step)()).items()
    }
    return types | {name: hint for name, hint in hints.items() if name in types}


def load_state(
    root: Path,
    plan: Plan,
    step: str,
    keys: Sequence[str],
    table: Iterable[Row],
    rule: str = "",
    progress: Callable[[int], None] = lambda rows: None,
) -> Load:
    """Start the state of a step from a table, whose columns ``keys`` are the key.

    ``rule``: for state that exists: by default the load is refused, ``MERGE`` keeps
    that of other keys, ``REPLACE`` removes it.  Raises CheckpointError, with no state changed, if a
    row does not fit.
    """
    rows = Rows(plan, step, keys)
    checkpoint = open_checkpoint(root, is_durable=True)
    try:
        plan = replace(plan, key_groups=planned_key_groups(root) or plan.key_groups)
        there = _there(checkpoint, step)
        if there and not rule:
            raise CheckpointError(
                f"step '{step}' has state of {len(there):,} keys at commit "
                f"{checkpoint.last.batch if checkpoint.last else 0}. --merge keeps that of keys "
                f"that the table lacks, --replace removes it. Nothing was loaded."
            )
        packed = _packed(rows, table, progress)
        count = len(packed)
        entries: dict[bytes, bytes | None] = dict.fromkeys(there if rule == REPLACE else ())
        entries.update(packed)
        check_compatibility(checkpoint, plan, allow_incompatible=False)
        return Load(_publish(checkpoint, plan, step, entries, count), count)
    finally:
        checkpoint.release()


def _there(checkpoint: Checkpoint, step: str) -> set[bytes]:
    """Return the encoded keys of which a step has state."""
    if checkpoint.last is None or step not in checkpoint.last.steps:
        return set()
    state = CheckpointReader(checkpoint.root).at()
    return {
        key for group in range(state.groups) for name, key in state.group(group) if name == step
    }


def _packed(
    rows: Rows, table: Iterable[Row], progress: Callable[[int], None]
) -> dict[bytes, bytes]:
    packed: dict[bytes, bytes] = {}
    for number, row in enumerate(table, 1):
        key, raw = rows.entry(number, row)
        encoded = encode_key(key)
        if encoded in packed:
            raise CheckpointError(
                f"row {number:,} has key {key!r}, as a row before it. Aggregate the table, so that "
                f"each key has one row. Nothing was loaded."
            )
        packed[encoded] = raw
        if number % PROGRESS_ROWS == 0:
            progress(number)
    if not packed:
        raise CheckpointError("the table has no rows. Nothing was loaded.")
    return packed


def _publish(
    checkpoint: Checkpoint, plan: Plan, step: str, entries: Mapping[bytes, bytes | None], count: int
) -> int:
    last = checkpoint.last
    steps = last.steps if last else ()
    steps = steps if step in steps else (*steps, step)
    number = steps.index(step)
    groups: dict[int, list[Entry]] = {}
    for key, raw in entries.items():
        groups.setdefault(group_of(key, plan.key_groups), []).append(Entry(number, key, raw))
    delta = write_delta(checkpoint, last, groups, plan.key_groups)
    fault_point("load.before")
    what = f"loaded {count} keys of step '{step}'"
    batch = publish_edit(checkpoint, last, steps, what, (delta,))
    fault_point("load.after")
    return batch
