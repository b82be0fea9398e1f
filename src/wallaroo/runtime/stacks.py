"""A busy worker's report of its place in the code.

Where it runs: worker.

The worker writes its Python stack into a file of its own when it gets a signal (faulthandler: no
Python code has to run for that).  It costs nothing until then.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

SIGNAL = signal.SIGUSR1


def listen(folder: str) -> None:
    """Answer the signal from now on, unless the application uses it itself."""
    if not folder or signal.getsignal(SIGNAL) != signal.SIG_DFL:
        return
    Path(folder).mkdir(exist_ok=True)
    file = open(Path(folder, str(os.getpid())), "ab", buffering=0)  # noqa: SIM115  # as long as the process
    faulthandler.register(SIGNAL, file, all_threads=False)
