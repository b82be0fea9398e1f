"""The egress: one process per TCP sink that sends committed output, in order, over a connection
that stays open.

Where it runs: a process of its own, started by the sink's committer: ``python -m
wallaroo.sinks.tcp.egress CONFIG``.

The law: one egress at a time per outbox, by a lock that dies with its process.  What it does stands
in ``egress_loop``.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from wallaroo.errors import WallarooError
from wallaroo.sinks.tcp.egress_loop import Egress
from wallaroo.sinks.tcp.pipe import EXIT_BROKEN, EgressConfig, Pipe
from wallaroo.sinks.tcp.progress import ProgressFile


def locked(path: Path, pipe: Pipe) -> int:
    """Take the outbox's lock, waiting for an egress of an earlier run to finish; return the
    descriptor that holds it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pipe.say(waiting="an earlier run's egress to finish")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def main(text: str) -> int:
    """Run one egress; 0 at an orderly end, ``EXIT_BROKEN`` where the outbox cannot be used."""
    config = EgressConfig(**json.loads(text))
    pipe = Pipe()
    lock = locked(Path(config.staging) / "lock", pipe)
    try:
        progress = ProgressFile(Path(config.staging) / "progress", config.is_durable)
        pipe.say(ready=asdict(progress.progress))
        egress = Egress(config, progress, pipe)
        egress.run()
    except (
        WallarooError,
        OSError,
    ) as error:  # the process's one gate: the committer tells the user
        pipe.say(broken=f"{error}")
        return EXIT_BROKEN
    finally:
        os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
