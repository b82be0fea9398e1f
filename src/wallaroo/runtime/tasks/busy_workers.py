"""Code locations of this machine's busy workers (``runtime.tasks.stacks``).

Where it runs: driver.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from wallaroo.runtime.tasks.stacks import SIGNAL

ANSWER_S = 0.5
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_OURS = ("/wallaroo/engine/", "/wallaroo/runtime/", "/wallaroo/state/", "/wallaroo/steps/")


def describe_workers(folder: Path, log: Callable[[str], None]) -> Iterator[str]:
    """Yield a line per busy worker with its code location.

    A worker that was stopped from outside is killed: its task runs again elsewhere.
    """
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            process = psutil.Process(int(file.name))
            if process.status() == psutil.STATUS_STOPPED:
                log(f"worker process {process.pid} was stopped from outside; killing it")
                process.kill()
                yield f"worker process {process.pid} was stopped from outside, and is killed"
            elif where := _place(_asked(process, file)):
                yield f"worker process {process.pid} is at {where}"
        except (psutil.Error, ValueError, OSError):
            continue  # the process has ended


def _asked(process: psutil.Process, file: Path) -> str:
    begins = file.stat().st_size
    process.send_signal(SIGNAL)
    until = time.monotonic() + ANSWER_S
    while file.stat().st_size == begins and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.01)  # the stack is written line by line
    return file.read_bytes()[begins:].decode(errors="replace")


def _place(stack: str) -> str:
    r"""Return the innermost location in user code; "" if no task is running.

    >>> ours = '  File "/x/wallaroo/runtime/task.py", line 1 in run_level'
    >>> _place('  File "/a/app.py", line 7 in slow\n' + ours)
    '/a/app.py:7 in slow()'
    >>> host = '  File "/x/wallaroo/spark/resident/job.py", line 31 in _stay'
    >>> _place('  File "/x/wallaroo/engine/levels/level.py", line 5 in advance\n' + ours + host)
    '/x/wallaroo/engine/levels/level.py:5 in advance()'
    >>> _place('  File "/x/pyspark/daemon.py", line 7 in worker')
    ''
    """
    frames = list(_FRAME.finditer(stack))
    ends = [at for at, frame in enumerate(frames) if frame["function"].endswith("run_level")]
    if not ends:
        return ""
    frames = frames[: ends[0] + 1]  # outer frames call no user code
    users = [frame for frame in frames if not any(own in frame["file"] for own in _OURS)]
    innermost = (users or frames)[0]
    return f"{innermost['file']}:{innermost['line']} in {innermost['function']}()"
