"""`wallaroo run` as a process that a benchmark watches: Market Spread, fed from outside.

Where it runs: the benchmark's process only watches; the driver is a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.lib import loads
from benchmarks.lib.machine import BenchmarkError

START_S_MAX, STOP_S_MAX = 120.0, 60.0
LOG = "run.log"


@contextmanager
def market_spread(
    folder: Path,
    ports: Sequence[int],
    out_port: int,
    options: Sequence[str],
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the example until the block is left; gives the process once it is ready.  What it says
    goes to ``folder``'s ``LOG``.
    """
    addresses = ",".join(
        f"{name}@{loads.HOST}:{port}"
        for name, port in zip((loads.ORDERS, loads.QUOTES), ports, strict=True)
    )
    application = loads.EXAMPLES / "market_spread" / "market_spread.py"
    command = [sys.executable, "-m", "wallaroo", "run", str(application), *options]
    command += ["--in", addresses, "--out", f"{loads.HOST}:{out_port}"]
    with open(folder / LOG, "wb") as log:
        run = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S_MAX
        while not is_ready():
            if run.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(
                    f"`wallaroo run` did not start: {(folder / LOG).read_text()[-2000:]}"
                )
            time.sleep(0.2)
        yield run
    finally:
        run.terminate()
        try:
            run.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
