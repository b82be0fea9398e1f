"""Exceptions of a user's source, as the error of the run.

Where it runs: wherever that code does: feeder processes, driver and workers.
"""

from __future__ import annotations

import traceback
from typing import Any

from wallaroo.errors import UserCodeError

VALUE_CHARS = 200


def failure_of(source: str, error: BaseException, event: str) -> UserCodeError:
    """Return the error; ``event`` describes the argument of the call."""
    frames = traceback.extract_tb(error.__traceback__)
    return UserCodeError(
        source,
        f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "its own thread",
        event,
        f"{type(error).__name__}: {error}",
        "".join(traceback.format_exception(error)),
    )


def after(position: Any) -> str:
    """Describe the event that a source was asked for: the one after a position."""
    return f"after position {repr(position)[:VALUE_CHARS]}"
