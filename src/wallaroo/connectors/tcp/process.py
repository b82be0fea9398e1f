"""The committer's side of the egress process.

Where it runs: driver.

A thread starts the egress, hands messages over, reads its answers, and replaces it when it dies or
hangs.

The invariants:

* No caller ever waits for an egress: messages are pulled by the thread when the egress accepts
  them, and its pipe is non-blocking.
* An egress that answers no pings is named, then killed.  Its replacement is started after the
  killed one has ended, so two never write to one connection, and takes the connection over through
  the descriptor that this side holds.
* `close` returns within its time plus ``STOP_S`` twice, even if the egress hangs.  An egress that
  still waits for its receiver is left running; it ends on its own (`ending`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from wallaroo.connectors.tcp.pipe import EXIT_BROKEN, EgressConfig, Message, Pipe
from wallaroo.errors import PeerError
from wallaroo.processes.environment import python_environment

RESTART_S = 0.25  # an egress that exits immediately is not restarted sooner
STOP_S = 3.0  # for an egress to report that it ends; twice that if it has to be replaced first
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EgressTimeouts:
    """Intervals of pings and replacement."""

    ping_s: float = 1.0  # between two pings; an egress answers each
    named_s: float = 3.0  # after this the status names it
    killed_s: float = 30.0  # after this it is replaced
    start_s: float = 60.0  # instead, until its first message: a new process on a busy machine


class Handover(NamedTuple):
    """Descriptor of the egress's connection, and the known facts about it."""

    descriptor: int
    start: int
    base: int


class HandoverSocket:
    """A socket for second descriptors of the egress's connections; the latest counts."""

    def __init__(self) -> None:
        self._ours, self.child = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        self.latest: Handover | None = None

    def receive(self) -> None:
        """Receive what has arrived; keep the latest descriptor."""
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        while True:
            try:
                raw, descriptors, _, _ = socket.recv_fds(self._ours, 4096, 4, flags)
            except BlockingIOError:
                return
            self.drop()
            if descriptors:
                facts = json.loads(raw)
                self.latest = Handover(descriptors[0], facts["start"], facts["base"])

    def drop(self) -> None:
        """Close the descriptor: the connection ends with the egress."""
        if self.latest is not None:
            os.close(self.latest.descriptor)
            self.latest = None

    def close(self) -> None:
        """Close everything."""
        self.drop()
        self._ours.close()
        self.child.close()


class Child:
    """One egress process, the pipe to it, and its silence so far."""

    def __init__(self, process: subprocess.Popen[bytes]):
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.pipe = Pipe(process.stdout.fileno(), process.stdin.fileno())
        self.silent_ticks = 0
        self.has_spoken = False
        self.has_close = False

    def receive(self) -> list[Message]:
        """Return the whole messages that have arrived; any of them ends the silence."""
        messages = self.pipe.receive()
        if messages:
            self.silent_ticks = 0
            self.has_spoken = True
        return messages

    def close(self) -> None:
        """Close the pipes of a process that has ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


class EgressProcess:
    """The thread that keeps one egress running.

    ``receive`` gets every message and ``pull`` returns the next message to hand over, or None;
    ``restart`` is called before a new egress is handed anything.  All three are called in the
    thread.
    """

    def __init__(
        self,
        config: EgressConfig,
        receive: Callable[[Message], None],
        pull: Callable[[], Message | None],
        restart: Callable[[], None],
        timeouts: EgressTimeouts,
    ):
        self._config = config
        self._receive = receive
        self._pull = pull
        self._restart = restart
        self._timeouts = timeouts
        self._handover = HandoverSocket()
        self._awake, self._waker = socket.socketpair()
        self._intent = Intent()
        self._starts = 0
        self._child = self._start()
        self._thread = threading.Thread(
            target=self._run, name=f"egress {config.host}:{config.port}", daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        """Return the process id of the current egress."""
        return self._child.process.pid

    def wake(self) -> None:
        """Let the thread pull."""
        with contextlib.suppress(OSError):  # it is awake anyway, or has ended
            self._waker.send(b"x", socket.MSG_DONTWAIT)

    def close(self, seconds: float) -> None:
        """Ask the egress to end; wait at most ``seconds`` until everything is acknowledged.

        One that hangs is killed and replaced even now, because its exact place is known only from
        its connection.  One that waits for its receiver is left running.
        """
        self._intent.is_closing = True
        self.wake()
        intent = self._intent
        if not intent.is_ending.wait(STOP_S):  # it hangs, or is still starting
            self._child.process.kill()
            if not intent.is_ending.wait(STOP_S):
                intent.is_abandoned = True
                self._child.process.kill()
                self._thread.join(STOP_S)
        intent.is_acknowledged.wait(seconds)
        intent.is_left = True
        self.wake()
        if intent.is_acknowledged.is_set():
            self._thread.join(RESTART_S)  # most receivers close their side immediately

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._serve(self._child):
                pass
        finally:
            self._intent.is_ending.set()
            self._intent.is_acknowledged.set()
            self._handover.close()
            self._awake.close()
            self._waker.close()

    def _serve(self, child: Child) -> bool:
        """Serve one egress until it ends; return whether the next one was started."""
        started = time.monotonic()
        tick_at = started + self._timeouts.ping_s
        while not child.pipe.has_ended:
            self._hand_over(child)
            self._poll(child, max(0.0, tick_at - time.monotonic()))
            for message in child.receive():
                self._handle(message)
            if time.monotonic() >= tick_at:
                tick_at = time.monotonic() + self._timeouts.ping_s
                self._tick(child)
            if self._intent.is_left:
                self._handover.drop()
        return self._replace(child, started)

    def _hand_over(self, child: Child) -> None:
        """Write as much as the pipe accepts; after everything else, the intent to close.

        Messages that a dead egress did not read are passed to its replacement.
        """
        child.pipe.flush()
        while not child.pipe.has_output:
            message = self._pull()
            if message is not None:
                child.pipe.send(**message)
            elif self._intent.is_closing and not child.has_close:
                child.has_close = True
                child.pipe.send(close=True)
            else:
                return

    def _poll(self, child: Child, seconds: float) -> None:
        poll = select.poll()
        poll.register(child.pipe.incoming, select.POLLIN)
        poll.register(self._awake, select.POLLIN)
        if child.pipe.has_output:
            poll.register(child.pipe.outgoing, select.POLLOUT)
        if any(descriptor == self._awake.fileno() for descriptor, _ in poll.poll(seconds * 1000)):
            self._awake.recv(4096)

    def _tick(self, child: Child) -> None:
        """Ping the egress; report one that has not answered for long, then kill it."""
        timeouts = self._timeouts
        child.silent_ticks += 1
        if not child.pipe.has_output:
            child.pipe.send(ping=True)
        silent_s = child.silent_ticks * timeouts.ping_s
        if silent_s >= (timeouts.killed_s if child.has_spoken else timeouts.start_s):
            _LOG.warning(
                "The sending process %d of tcp %s:%d has not answered for %.0f s: it is killed and "
                "replaced.",
                child.process.pid,
                self._config.host,
                self._config.port,
                silent_s,
            )
            child.process.kill()
        elif silent_s >= timeouts.named_s:
            self._receive({"silent": silent_s, "pid": child.process.pid})

    def _handle(self, message: Message) -> None:
        if "handed_over" in message:
            self._handover.receive()
            return
        if "lost" in message:
            self._handover.receive()
            self._handover.drop()
        if "ending" in message:
            self._intent.is_ending.set()
            if not message["ending"][0]:
                self._intent.is_acknowledged.set()
        self._receive(message)

    def _replace(self, child: Child, started: float) -> bool:
        code = child.process.wait()
        child.close()
        intent = self._intent
        if intent.is_abandoned or code == EXIT_BROKEN or (intent.is_closing and code == 0):
            return False
        if intent.is_left:
            return False
        if code > 0:  # it failed: report where to look, and start it again
            log = f"{self._config.staging}/egress.log"
            self._receive(
                {"waiting": f"the sending process to restart (exit code {code}, see {log})"}
            )
        self._handover.receive()
        time.sleep(max(0.0, RESTART_S - (time.monotonic() - started)))
        self._restart()
        try:
            self._child = self._start()
        except PeerError as error:
            self._receive({"broken": str(error)})
            return False
        return True

    def _start(self) -> Child:
        config = replace(self._config, handover_fd=self._handover.child.fileno())
        descriptors = [config.handover_fd]
        if (handover := self._handover.latest) is not None:
            config = replace(
                config,
                inherited_fd=handover.descriptor,
                inherited_start=handover.start,
                inherited_base=handover.base,
            )
            descriptors.append(handover.descriptor)
        environment = python_environment()
        if self._starts:
            environment.pop("WALLAROO_FAULT", None)  # a fault strikes once
        self._starts += 1
        command = [
            sys.executable,
            "-m",
            "wallaroo.connectors.tcp.egress",
            json.dumps(asdict(config)),
        ]
        try:
            with open(Path(config.staging) / "egress.log", "wb", opener=_private) as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                    pass_fds=descriptors,
                    bufsize=0,
                )
        except OSError as error:
            raise PeerError(
                f"The sending process of tcp {config.host}:{config.port} cannot be started: "
                f"{error}. Free memory or processes, then run again."
            ) from error
        return Child(process)


class Intent:
    """The intent of the process's owner, and its progress."""

    def __init__(self) -> None:
        self.is_closing = False  # whether it ends normally
        self.is_abandoned = False  # killed for good
        self.is_left = False  # it may continue alone until its receiver has read everything
        self.is_ending = threading.Event()
        self.is_acknowledged = threading.Event()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
