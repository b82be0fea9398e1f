"""The user's frames of a call stack, outside of this package.

Frames are distinguished by their module's name, never by a path: a user's project may lie in a
folder of any name.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

PACKAGE = __name__.partition(".")[0]
# between an import statement and the module's code
IMPORT_SYSTEM = "importlib"


def module_of(frame: FrameType) -> str:
    """Return the module whose code a frame runs; for ``python -m name`` not ``__main__``."""
    name = str(frame.f_globals.get("__name__", ""))
    spec: Any = frame.f_globals.get("__spec__")
    return str(spec.name) if name == "__main__" and spec is not None else name


def is_user_frame(frame: FrameType) -> bool:
    name = module_of(frame)
    return not _is_within(name, PACKAGE) and not _is_within(name, IMPORT_SYSTEM)


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def user_frame() -> FrameType | None:
    """Return the innermost frame on the stack that is the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_frame(frame):
        frame = frame.f_back
    return frame


def user_files() -> Iterator[str]:
    """Yield the files of the user's frames on the stack, innermost first; no interactive input."""
    frame = user_frame()
    while frame is not None:
        if is_user_frame(frame) and not frame.f_code.co_filename.startswith("<"):
            yield frame.f_code.co_filename
        frame = frame.f_back


def user_place() -> str:
    """Return ``file:line`` of the user's call into this package, or ``""``."""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


def user_frames(trace: TracebackType | None) -> traceback.StackSummary:
    """Return the user's part of a traceback, outermost first."""
    return traceback.StackSummary.extract(_walk(trace))


def _walk(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    for frame, line in traceback.walk_tb(trace):
        if is_user_frame(frame):
            yield frame, line
