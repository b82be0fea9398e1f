"""Several hosts on this machine: network namespaces behind a bridge.

Where it runs: the verifier, as root on Linux.

The driver's host is this machine's own namespace, at the bridge's address.  Every other host has a
namespace and a cable (a veth pair) to the bridge.  A pulled cable drops everything silently: no
reset, no error, as when a switch fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from wallaroo.errors import PeerError

CLIENTS = "clients"  # the host of senders and receivers
STORE = "store"  # the host of an object store
SLOW = "128kbit"
CLONE_NEWNET = 0x40000000
# mounts of a process's own; a user who is not root is, within them
UNSHARE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--map-root-user", "--mount")
NEEDED = ("ip", "nsenter", "tc", "unshare")
Found = TypeVar("Found")


def hiding(folder: Path, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs ``command`` with an empty folder in place of a folder."""
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    return (*UNSHARE, "sh", "-c", mount, str(folder), *command)


def unsupported_reason() -> str:
    """Return why network namespaces are unavailable here, "" if they are available."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"network namespaces need the programs {', '.join(missing)} (iproute2, util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"wl{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces are not permitted here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return ""


class Hosts:
    """Hosts for workers and one for clients, within a ``with`` block.

    If ``hidden`` names a folder, there is a host for an object store, too, and workers see an empty
    folder there: they have no file in common with the driver.
    """

    def __init__(self, workers: int, hidden: Path | None = None):
        self._hidden = hidden
        self._mark = f"wl{os.getpid() % 1_000_000}"
        self._net = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"
        others = (CLIENTS, STORE) if hidden else (CLIENTS,)
        self.workers = tuple(f"worker-{number}" for number in range(1, workers + 1))
        self.names = (*others, *self.workers)

    def __enter__(self) -> Hosts:
        reason = unsupported_reason()
        if reason:
            raise PeerError(f"{reason[0].upper()}{reason[1:]}.")
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    # -- places of a cluster

    @property
    def master_host(self) -> str:
        """Return the address of the driver's host, which is also the Master's."""
        return f"{self._net}.1"

    def host_of_worker(self, number: int) -> str:
        """Return a worker's address."""
        return self.address(f"worker-{number}")

    def command_of_worker(self, number: int, command: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command that runs ``command`` on the worker's host."""
        there = ("nsenter", f"--net={self._file(f'worker-{number}')}")
        if self._hidden is None:
            return (*there, *command)
        return (*there, *hiding(self._hidden, command))

    def address(self, name: str) -> str:
        """Return a host's address."""
        return f"{self._net}.{self.names.index(name) + 2}"

    # -- cables

    def cut(self, name: str) -> None:
        """Pull a host's cable."""
        _ip("link", "set", self._cable(name), "down")

    def cut_between(self, one: str, other: str) -> None:
        """Disconnect two hosts from each other, but from no others."""
        for name, gone in ((one, other), (other, one)):
            _ip("-n", self._space(name), "route", "add", "blackhole", f"{self.address(gone)}/32")

    def slow(self, name: str) -> None:
        """Let a cable carry ``SLOW`` at most, in each direction; what waits is delayed."""
        limit = ("root", "tbf", "rate", SLOW, "burst", "16kb", "latency", "2s")
        _run("tc", "qdisc", "replace", "dev", self._cable(name), *limit)
        inner = f"{self._cable(name)}i"
        _run("tc", "-n", self._space(name), "qdisc", "replace", "dev", inner, *limit)

    def heal(self) -> None:
        """Reconnect all cables and all hosts."""
        for name in self.names:
            cable = self._cable(name)
            _ip("link", "set", cable, "up")
            _quietly("tc", "qdisc", "del", "dev", cable, "root")
            _quietly("tc", "-n", self._space(name), "qdisc", "del", "dev", f"{cable}i", "root")
            for other in self.names:
                route = ("route", "del", "blackhole", f"{self.address(other)}/32")
                _quietly("ip", "-n", self._space(name), *route)

    # -- threads

    @contextlib.contextmanager
    def entered(self, name: str) -> Iterator[None]:
        """Let this thread open its sockets on a host, for a ``with`` block."""
        own = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
        there = os.open(self._file(name), os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(own)
        finally:
            os.close(there)
            os.close(own)

    def called_on(self, name: str, call: Callable[[], Found]) -> Found:
        """Return what ``call`` returns on that host."""
        with self.entered(name):
            return call()

    # -- making and removing

    def _make(self) -> None:
        _ip("link", "add", self._mark, "type", "bridge")
        _ip("addr", "add", f"{self.master_host}/24", "dev", self._mark)
        _ip("link", "set", self._mark, "up")
        for name in self.names:
            space = self._space(name)
            cable = self._cable(name)
            inner = f"{self._cable(name)}i"
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", inner)
            _ip("link", "set", inner, "netns", space)
            _ip("link", "set", cable, "master", self._mark, "up")
            _ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", inner)
            _ip("-n", space, "link", "set", inner, "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for name in self.names:
            _quietly("ip", "link", "del", self._cable(name))
            _quietly("ip", "netns", "del", self._space(name))
        _quietly("ip", "link", "del", self._mark)

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _cable(self, name: str) -> str:
        return f"{self._mark}v{self.names.index(name)}"

    def _file(self, name: str) -> str:
        return f"/run/netns/{self._space(name)}"


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def _quietly(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)
