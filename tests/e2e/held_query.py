"""A query of a checkpoint in a process of its own, which stops itself at a point, as SIGSTOP does.

Arguments: the point, and those of ``wallaroo``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from wallaroo.checkpoints.inspection.reader import CheckpointReader, StateAt
from wallaroo.cli.main import main

# it is about to open the files of the commit that it chose; it has read one key group of them
POINTS = {"chosen": (CheckpointReader, "_open"), "reading": (StateAt, "keyed")}


def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Stop this process before the first call."""
    calls: list[None] = []

    @wraps(function)
    def stopped(*arguments: Any) -> Any:
        if not calls:
            calls.append(None)
            os.kill(os.getpid(), signal.SIGSTOP)
        return function(*arguments)

    return stopped


if __name__ == "__main__":
    holder, name = POINTS[sys.argv[1]]
    setattr(holder, name, stopping(getattr(holder, name)))
    sys.exit(main(sys.argv[2:]))
