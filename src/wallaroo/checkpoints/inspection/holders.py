"""Search of a checkpoint's stored objects for classes whose fields have changed."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.keyed import step_of
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.inspection.values import OpaqueObject
from wallaroo.dataflow.plan.positions import MODEL, Held, Moved
from wallaroo.engine.stores.evolution import stored_version
from wallaroo.steps.state_versions import FIRST

_PICKLE = re.compile(b"\x80\x05")  # accumulators and runs of events have pickles in their pickles


class _Reader(pickle.Unpickler):
    """An unpickler that imports nothing and notes classes that misread objects."""

    def __init__(self, raw: bytes, moved: Mapping[str, Moved]):
        super().__init__(io.BytesIO(raw))
        self._moved = moved
        self.outermost = ""
        self.misread: list[tuple[str, Any]] = []  # classes with an object, if it matters

    def find_class(self, module: str, name: str) -> type[OpaqueObject]:
        """Return a stand-in."""
        path = f"{module}.{name}"
        self.outermost = self.outermost or path
        moved = self._moved.get(path)
        if moved is None:
            return OpaqueObject
        misread = self.misread
        is_misread = partial(_is_misread, moved)
        if not moved.may_call and not moved.is_of_another_kind:
            misread.append((path, None))

        class StandIn(OpaqueObject):
            def __setstate__(self, state: Any) -> None:
                if is_misread(state):
                    misread.append((path, self))

        return StandIn


def _is_misread(moved: Moved, state: Any) -> bool:
    if moved.is_of_another_kind:
        is_of_model = type(state) is dict and "__pydantic_fields_set__" in state
        return is_of_model != (moved.now == MODEL)
    return bool(moved.was) or type(state) is not list


def holders_of(
    root: Path,
    moved: Mapping[str, Moved],
    states: Mapping[str, Any],
    schemas: Mapping[str, Any],
    batch: int | None = None,
) -> set[Held]:
    """Return the steps with stored objects of classes that would misread them.

    ``states`` and ``schemas`` are the notes of the plan; ``batch``: at that commit, not the newest.
    """
    held: set[Held] = set()
    names = re.compile(b"|".join(re.escape(name.encode()) for name in _last_parts(moved)))
    state = CheckpointReader(root).at(batch)
    for group in range(state.groups):
        for (name, _), raw in state.group(group).items():
            if names.search(raw) is None:
                continue
            step, kind = step_of(name)
            for path, is_outermost in misread_in(raw, moved):
                cls = states.get(step, {}).get("class")
                is_state = not kind and is_outermost and path == cls
                version = schemas.get(step, {}).get("version", FIRST)
                # an upgrade knows the names, and slots without values are filled in
                is_read = (
                    stored_version(raw) != version
                    or moved[path].is_of_another_kind
                    or (moved[path].may_call and bool(moved[path].was))
                )
                if not (is_state and is_read):
                    held.add(Held(path, is_state, step))
    return held


def _last_parts(paths: Mapping[str, Any]) -> set[str]:
    return {path.rpartition(".")[2] for path in paths}


def misread_in(raw: bytes, moved: Mapping[str, Moved]) -> set[tuple[str, bool]]:
    """Return the classes of objects in a stored value, and whether one is the value itself."""
    misread: set[tuple[str, bool]] = set()
    for start in _PICKLE.finditer(raw):
        reader = _Reader(raw[start.start() :], moved)
        try:
            value = reader.load()
        except Exception:  # noqa: BLE001  # bytes that only look like the beginning of a pickle
            continue
        is_whole = start.start() == 0
        misread |= {
            (path, is_whole and (path == reader.outermost if one is None else one is value))
            for path, one in reader.misread
        }
    return misread
