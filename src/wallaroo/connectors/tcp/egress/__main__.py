"""The egress: one process per TCP sink that sends committed output.

Where it runs: a process of its own, started by the sink's committer: ``python -m
wallaroo.connectors.tcp.egress CONFIG``.

It sends in order, over a connection that stays open.

The invariant: one egress at a time per outbox, by a lock that is released when its process ends.
An egress that outlives its driver, because it waits for its receiver, keeps the lock: no other one
sends meanwhile.  If an egress was killed together with its driver, the next one waits until the
kernel has ended the old connection (`await_orphan`).  `machine` decides what is sent, `loop` sends
it.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from wallaroo.connectors.tcp.egress.ending import Ending
from wallaroo.connectors.tcp.egress.loop import Egress
from wallaroo.connectors.tcp.pipe import EXIT_BROKEN, EgressConfig, Pipe
from wallaroo.connectors.tcp.progress import ProgressFile
from wallaroo.durable.locks import LockedError, lock_file
from wallaroo.errors import WallarooError

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# include/net/tcp_states.h
FIN_WAIT_1 = 4
FIN_WAIT_2 = 5
LAST_ACK = 9
CLOSING = 11
ENDING = frozenset([FIN_WAIT_1, FIN_WAIT_2, LAST_ACK, CLOSING])


def bytes_under_way(local_port: int, remote_port: int) -> int | None:
    """Return the unsent bytes of a connection without a process, None if it has ended."""
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            entry = parsed(line)
            if entry is not None and entry[:2] == (local_port, remote_port):
                return entry[2]
    return None


def parsed(line: str) -> tuple[int, int, int] | None:
    """Return an ending connection's local port, remote port and unsent bytes; None for others.

    >>> parsed("  9: 0100007F:B26E 0100007F:1F90 04 0000C350:00000000 01:00000015 00000000 0")
    (45678, 8080, 50000)
    >>> parsed("  9: 0100007F:B26E 0100007F:1F90 01 00000000:00000000 01:00000015 00000000 0")
    """
    fields = line.split()
    if int(fields[3], 16) not in ENDING:
        return None
    local, remote, queues = (fields[place].split(":") for place in (1, 2, 4))
    return int(local[1], 16), int(remote[1], 16), int(queues[0], 16)


LOCK_POLL_S = 0.05  # between two attempts to take the lock


def take_lock(path: Path, pipe: Pipe) -> int:
    """Take the outbox's lock, waiting for an egress of an earlier run to end.

    Returns the descriptor that holds it, or -1 if the committer closed meanwhile.
    """
    waiting = ""
    while True:
        try:
            return lock_file(path, f"process {os.getpid()}")
        except LockedError as error:
            holder = f"{error.holder}; kill it if it is stopped" if error.holder else "starting"
            reason = f"the sending process of an earlier run to end ({holder})"
        if reason != waiting:
            waiting = reason
            pipe.send(waiting=reason)
        if not _wait(pipe):
            return -1


def await_orphan(config: EgressConfig, local_port: int, pipe: Pipe) -> bool:
    """Wait for the end of a killed egress's connection; return False if the committer closed.

    The kernel keeps sending the bytes that a killed process has written. How many of them arrive is
    unknown, so the next connection repeats everything that was not recorded as acknowledged. It
    waits until the old one has ended, so a receiver that serves connections in parallel gets
    nothing out of order. Systems other than Linux do not list their connections: there it does not
    wait.
    """
    ending = Ending(time.monotonic())
    while (missing := bytes_under_way(local_port, config.port)) is not None:
        now = time.monotonic()
        ending.note_missing(missing, now)
        if ending.is_over(now):
            break
        pipe.send(waiting=f"the connection of a killed sending process to end ({missing} bytes)")
        if not _wait(pipe):
            return False
    pipe.send(waiting="")
    return True


def _wait(pipe: Pipe) -> bool:
    """Wait a moment and answer pings; return False if the committer closed or ended."""
    select.select([0], [], [], LOCK_POLL_S)
    messages = pipe.receive()
    if any("ping" in message for message in messages):
        pipe.send(alive=True)
    pipe.flush()
    pipe.hold_back([message for message in messages if "ping" not in message])
    return pipe.is_open and not any("close" in message for message in messages)


def main(text: str) -> int:
    """Run one egress; return 0 at an orderly end, ``EXIT_BROKEN`` if the outbox is unusable."""
    config = EgressConfig.from_json(text)
    pipe = Pipe(0, 1)
    staging = Path(config.staging)
    lock = -1
    try:
        lock = take_lock(staging / "lock", pipe)
        if lock >= 0:
            record = ProgressFile(staging, config.is_durable)
            port = record.progress.local_port if config.inherited_fd < 0 else 0
            if port == 0 or await_orphan(config, port, pipe):
                pipe.send(ready=True, acked=record.progress.acked)
                Egress(config, record, pipe, lock).run()
    except (WallarooError, OSError) as error:  # the process's one error boundary
        pipe.send(broken=f"{error}")
        return EXIT_BROKEN
    finally:
        if lock >= 0:
            os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
