"""Where in the user's files a call was written.

Where it runs: driver, while an application is built.
"""

from __future__ import annotations

import sys
from types import FrameType


def user_frame() -> FrameType | None:
    """The innermost frame outside of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == "wallaroo" or name.startswith("wallaroo.")


def user_place() -> str:
    """``file:line`` of the user's call into this package, or ``""``."""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
