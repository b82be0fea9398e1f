"""Search of a checkpoint's stored objects for classes whose fields have changed."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.keyed import step_of
from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.checkpoints.inspection.values import OpaqueObject
from wallaroo.dataflow.plan.positions import Held, Moved
from wallaroo.engine.stores.evolution import stored_version
from wallaroo.steps.state_versions import FIRST

_PICKLE = re.compile(b"\x80\x05")  # accumulators and runs of events have pickles in their pickles


class _Reader(pickle.Unpickler):
    """An unpickler that imports nothing and notes classes that misread objects."""

    def __init__(self, raw: bytes, moved: Mapping[str, Moved]):
        super().__init__(io.BytesIO(raw))
        self._moved = moved
        self.outermost = ""
        self.misread: set[str] = set()

    def find_class(self, module: str, name: str) -> type[OpaqueObject]:
        """Return a stand-in."""
        path = f"{module}.{name}"
        self.outermost = self.outermost or path
        moved = self._moved.get(path)
        if moved is None:
            return OpaqueObject
        if not moved.may_call:
            self.misread.add(path)
        misread = self.misread
        was_by_name = not moved.was

        class StandIn(OpaqueObject):
            def __setstate__(self, state: Any) -> None:
                if not was_by_name or type(state) is not list:
                    misread.add(path)

        return StandIn


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
            for path, is_outermost in _misread(raw, moved):
                cls = states.get(step, {}).get("class")
                is_state = not kind and is_outermost and path == cls
                version = schemas.get(step, {}).get("version", FIRST)
                # an upgrade knows the names, and slots without values are filled in
                is_read = stored_version(raw) != version or (
                    moved[path].may_call and bool(moved[path].was)
                )
                if not (is_state and is_read):
                    held.add(Held(path, is_state, step))
    return held


def _last_parts(paths: Mapping[str, Any]) -> set[str]:
    return {path.rpartition(".")[2] for path in paths}


def _misread(raw: bytes, moved: Mapping[str, Moved]) -> set[tuple[str, bool]]:
    """Return the classes of objects in a stored value, and whether one is the value itself."""
    misread: set[tuple[str, bool]] = set()
    for start in _PICKLE.finditer(raw):
        reader = _Reader(raw[start.start() :], moved)
        try:
            reader.load()
        except Exception:  # noqa: BLE001  # bytes that only look like the beginning of a pickle
            continue
        is_whole = start.start() == 0
        misread |= {(path, is_whole and path == reader.outermost) for path in reader.misread}
    return misread
