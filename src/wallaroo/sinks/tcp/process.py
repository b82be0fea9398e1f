"""The egress as its committer sees it: started, spoken to, heard in a thread, started again when it
dies.

Where it runs: driver.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path

from wallaroo.errors import PeerError
from wallaroo.sinks.tcp.pipe import EXIT_BROKEN, EgressConfig, Message

RESTART_SECONDS = 0.25  # an egress that dies at once is not started again sooner
PACKAGE_ROOT = str(Path(__file__).parents[2])


class EgressProcess:
    """Keeps one egress alive.

    ``hear`` gets every message, in the listening thread; ``again`` says what a new egress has to be
    told first.  The keeper holds a second descriptor of the egress's connection, so that the
    connection outlives the process.
    """

    def __init__(
        self,
        config: EgressConfig,
        hear: Callable[[Message], None],
        again: Callable[[], Iterable[Message]],
    ):
        self._config, self._hear, self._again = config, hear, again
        self._pipe_lock = threading.Lock()
        self._is_closing = self._is_abandoned = False
        self._starts = 0
        self._kept: tuple[int, Message] | None = None
        self._keeper, self._keeper_of_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._keeper.setblocking(False)
        self._process = self._start()
        self._thread = threading.Thread(
            target=self._listen, name=f"egress {config.host}:{config.port}", daemon=True
        )
        self._thread.start()

    @property
    def pid(self) -> int:
        """Process id of the egress that runs now."""
        return self._process.pid

    def say(self, message: Message) -> None:
        """Tell the egress; where it is dead, the next one is told by ``again``."""
        with self._pipe_lock:
            self._write(message)

    def close(self, seconds: float) -> None:
        """Ask it to end; kill it where it does not within ``seconds``.

        An egress that was killed is started once more even now: only with the connection in custody
        is its place known exactly.
        """
        self._is_closing = True
        self.say({"close": True})
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._is_abandoned = True
            self._process.kill()
            self._thread.join(seconds)
        assert self._process.stdin is not None
        with self._pipe_lock:
            self._process.stdin.close()
        self._drop_kept()
        self._keeper.close()
        self._keeper_of_child.close()

    def _start(self) -> subprocess.Popen[bytes]:
        config = replace(self._config, keeper=self._keeper_of_child.fileno())
        descriptors = [config.keeper]
        if self._kept is not None:
            descriptor, custody = self._kept
            config = replace(
                config, kept=descriptor, kept_start=custody["start"], kept_base=custody["base"]
            )
            descriptors.append(descriptor)
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, (PACKAGE_ROOT, environment.get("PYTHONPATH")))
        )
        if self._starts:
            environment.pop("WALLAROO_FAULT", None)  # a fault strikes once
        self._starts += 1
        try:
            with (Path(config.staging) / "egress.log").open("wb") as log:
                command = [
                    sys.executable,
                    "-m",
                    "wallaroo.sinks.tcp.egress",
                    json.dumps(asdict(config)),
                ]
                return subprocess.Popen(
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
                f"{error}. "
                f"Free memory or processes, then run again."
            ) from error

    def _write(self, message: Message) -> None:
        assert self._process.stdin is not None
        rest = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while rest:
                rest = rest[os.write(self._process.stdin.fileno(), rest) :]
        except (BrokenPipeError, ValueError):
            pass  # dead: _listen starts another and hands everything over again

    def _listen(self) -> None:
        while True:
            started = time.monotonic()
            process = self._process
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith(b"\n"):  # a killed process may leave half a line
                    self._note(json.loads(line))
            process.stdout.close()
            code = process.wait()
            if self._is_abandoned or code == EXIT_BROKEN or (self._is_closing and code == 0):
                return
            if code > 0:  # it ended by itself: say where to look, and try again
                log = f"{self._config.staging}/egress.log"
                self._hear(
                    {"waiting": f"the sending process to restart (exit code {code}, see {log})"}
                )
            self._take_custody()
            time.sleep(max(0.0, RESTART_SECONDS - (time.monotonic() - started)))
            try:
                self._restart(process)
            except PeerError as error:
                self._hear({"broken": str(error)})
                return

    def _restart(self, dead: subprocess.Popen[bytes]) -> None:
        with self._pipe_lock:
            assert dead.stdin is not None
            dead.stdin.close()
            self._process = self._start()
            for message in self._again():
                self._write(message)
            if self._is_closing:
                self._write({"close": True})
            if self._is_abandoned:
                self._process.kill()

    def _note(self, message: Message) -> None:
        if "kept" in message:
            self._take_custody()
        else:
            if "lost" in message:
                self._take_custody()
                self._drop_kept()
            self._hear(message)

    def _take_custody(self) -> None:
        """Take what the egress gave into custody; only its latest connection counts."""
        flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        while True:
            try:
                raw, descriptors, _, _ = socket.recv_fds(self._keeper, 4096, 4, flags)
            except BlockingIOError:
                return
            self._drop_kept()
            if descriptors:
                self._kept = descriptors[0], json.loads(raw)

    def _drop_kept(self) -> None:
        if self._kept is not None:
            os.close(self._kept[0])
            self._kept = None
