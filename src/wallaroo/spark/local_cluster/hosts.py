"""Hosts and free ports for a cluster on one machine."""

from __future__ import annotations

import random
import socket
from typing import Protocol

MASTER_HOST = "127.0.0.1"
_HOSTS_PER_NET = 250
_PORTS = range(10_000, 32_000)  # below Linux's, macOS' and Windows' ports for connections
_CHANCE = random.SystemRandom()  # a user's seed would choose the same ports in every process


class Places(Protocol):
    """The hosts of a cluster's daemons."""

    @property
    def master_host(self) -> str:
        """Return the Master's address."""

    def host_of_worker(self, number: int) -> str:
        """Return a worker's address."""

    def command_of_worker(self, number: int, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that runs ``command`` on the worker's host."""


class Loopback:
    """A loopback address for every worker."""

    master_host = MASTER_HOST

    def host_of_worker(self, number: int) -> str:
        return host_of_worker(number)

    def command_of_worker(self, number: int, command: tuple[str, ...]) -> tuple[str, ...]:
        return command


def loopback_host(number: int) -> str:
    """Return the loopback address of the worker with this number; 127.0.0.1 is the master's.

    >>> loopback_host(1), loopback_host(2), loopback_host(250)
    ('127.0.0.2', '127.0.0.3', '127.0.1.1')
    """
    return f"127.0.{number // _HOSTS_PER_NET}.{number % _HOSTS_PER_NET + 1}"


def host_of_worker(number: int) -> str:
    """Return the worker's loopback address, the master's if there is no other (macOS)."""
    host = loopback_host(number)
    return host if is_free(host, 0) else MASTER_HOST


def is_free(host: str, port: int) -> bool:
    """Return whether the port is free (port 0: anywhere on that host)."""
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return different ports of the master's host that are free now.

    None is in the range that the system assigns to connections, and to servers that ask for any
    port: such a port might be taken before it is used, or while its server is restarted.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _CHANCE.choice(_PORTS)
        if port not in ports and is_free(MASTER_HOST, port):
            ports.append(port)
    return ports
