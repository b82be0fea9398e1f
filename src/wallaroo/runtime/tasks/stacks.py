"""On-demand stack dumps of busy workers.

On a signal, faulthandler writes the Python stack into the worker's own file, without running Python
code; it costs nothing until then.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path

SIGNAL = signal.SIGUSR1


def listen(folder: str) -> None:
    """Install the signal handler, unless the application uses the signal itself."""
    if not folder or signal.getsignal(SIGNAL) != signal.SIG_DFL:
        return
    Path(folder).mkdir(exist_ok=True)
    file = open(Path(folder, str(os.getpid())), "ab", buffering=0)  # noqa: SIM115  # as long as the process
    faulthandler.register(SIGNAL, file, all_threads=False)
