"""Connections that outlived their egress.

Where it runs: egress, before it connects.

The kernel continues to send what a killed process left.  How much of it arrives cannot be known, so
the next connection repeats what was not recorded as acknowledged; but it can wait until the old one
has ended, so that a receiver that serves connections in parallel gets nothing out of order.  If the
system does not list its connections (anything but Linux), it does not wait.
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
    """Return how many bytes a connection between these ports still has to send.

    Only one that no process holds counts; None if there is none.
    """
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            found = parsed(line)
            if found is not None and found[:2] == (local_port, remote_port):
                return found[2]
    return None


def parsed(line: str) -> tuple[int, int, int] | None:
    """Return local port, remote port and unsent bytes of a line that is an ending connection.

    >>> parsed("  9: 0100007F:B26E 0100007F:1F90 04 0000C350:00000000 01:00000015 00000000 0")
    (45678, 8080, 50000)
    >>> parsed("  9: 0100007F:B26E 0100007F:1F90 01 00000000:00000000 01:00000015 00000000 0")
    """
    fields = line.split()
    if int(fields[3], 16) not in ENDING:
        return None
    local, remote, queues = (fields[place].split(":") for place in (1, 2, 4))
    return int(local[1], 16), int(remote[1], 16), int(queues[0], 16)
