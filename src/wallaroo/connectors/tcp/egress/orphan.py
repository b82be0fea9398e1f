"""Connections that outlived their egress.

Where it runs: egress, before it connects.

The kernel keeps sending the bytes that a killed process has written.  How many of them arrive is
unknown, so the next connection repeats everything that was not recorded as acknowledged.  It waits
until the old one has ended, so a receiver that serves connections in parallel gets nothing out of
order. Systems other than Linux do not list their connections: there it does not wait.
"""

from __future__ import annotations

from pathlib import Path

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
