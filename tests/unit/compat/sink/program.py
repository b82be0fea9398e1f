"""A sink program, written from the protocol's text; it shares no code with the package.

What it would keep on its disk outlives `crash`; what it has in memory does not.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


def short(text: bytes) -> bytes:
    return struct.pack(">H", len(text)) + text


def read_short(content: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">H", content, at)
    return content[at + 2 : at + 2 + length], at + 2 + length


@dataclass
class Disk:
    """What the program keeps: output up to its last yes, and transactions that have no end yet."""

    output: bytearray = field(default_factory=bytearray)
    committed: int = 0
    voted: dict[bytes, tuple[bool, int, int]] = field(default_factory=dict)
    log: list[tuple[str, bytes]] = field(default_factory=list)


class Program:
    """Serves one connection after the other.  ``plan``: what it does with its votes, in order:
    ``"yes"``, ``"no"``, ``"gone before"`` or ``"gone after"`` the vote; yes when the plan is over.
    """

    def __init__(
        self,
        plan: list[str] | None = None,
        cookie: bytes = b"tacos",
        port: int = 0,
        kept: dict[bytes, Disk] | None = None,
    ):
        self.disk = kept or {}  # by instance
        self.plan = plan or []
        self.cookie = cookie
        self.opened = b"\1"  # what NOTIFY is answered with
        self.leftover = b""  # a transaction that nothing is known of, listed once
        self.said: list[int] = []  # types of frames that came
        self.failures: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._client: socket.socket | None = None
        threading.Thread(target=self._live, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.crash()

    def crash(self) -> None:
        """Lose the connection, and with it what is not on the disk."""
        client = self._client
        if client is not None:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def save(self, instance: bytes, disk: Disk) -> None:
        """Called before an answer that relies on what the disk holds."""

    def fail(self, what: str) -> None:
        """Note what is against the protocol."""
        self.failures.append(what)

    def committed(self) -> list[bytes]:
        """What a reader may trust, by instance."""
        return [bytes(disk.output[: disk.committed]) for disk in self.disk.values()]

    def _live(self) -> None:
        while True:
            try:
                self._client, _ = self._listener.accept()
            except OSError:
                return
            try:
                self._serve(self._client)
            except OSError:
                pass
            except AssertionError as error:
                self.fail(str(error))
            self._client.close()

    def _frames(self, client: socket.socket) -> Iterator[tuple[int, bytes]]:
        stream = client.makefile("rb")
        while len(head := stream.read(4)) == 4:
            content = stream.read(struct.unpack(">I", head)[0])
            self.said.append(content[0])
            yield content[0], content[1:]

    def _send(self, client: socket.socket, kind: int, body: bytes) -> None:
        client.sendall(struct.pack(">IB", 1 + len(body), kind) + body)

    def _control(self, client: socket.socket, kind: int, body: bytes) -> None:
        inner = struct.pack(">B", kind) + body
        self._send(client, 5, struct.pack(">QQqH", 0, 0, 0, 0) + inner)

    def _serve(self, client: socket.socket) -> None:
        frames = self._frames(client)
        kind, body = next(frames, (-1, b""))
        if kind == -1:  # killed before it said a word
            return
        assert kind == 0, "HELLO first"
        version, at = read_short(body, 0)
        cookie, at = read_short(body, at)
        _, at = read_short(body, at)
        instance, at = read_short(body, at)
        assert (version, at) == (b"v0.0.1", len(body))
        if cookie != self.cookie:
            self._send(client, 2, short(b"wrong cookie"))
            return
        disk = self.disk.setdefault(instance, Disk())
        self._recover(disk)
        self._send(client, 1, struct.pack(">I", 500))
        for kind, body in frames:
            if kind == 3:
                assert struct.unpack_from(">Q", body)[0] == 1
                self._send(client, 4, self.opened + struct.pack(">QQ", 1, 0))
                continue
            assert kind == 5, f"frame {kind}"
            stream, number, _, key = struct.unpack_from(">QQqH", body)
            payload = body[26 + key :]
            if stream == 1:
                assert number == len(disk.output), "output that does not follow"
                disk.output += payload
            elif not self._take(client, instance, payload):
                return

    def _recover(self, disk: Disk) -> None:
        ends = [end for is_yes, _, end in disk.voted.values() if is_yes]
        del disk.output[max([disk.committed, *ends]) :]

    def _take(self, client: socket.socket, instance: bytes, inner: bytes) -> bool:
        disk = self.disk[instance]
        if inner[0] == 201:
            names = list(disk.voted) + ([self.leftover] if self.leftover else [])
            self.leftover = b""
            listed = struct.pack(">I", len(names)) + b"".join(map(short, names))
            self._control(client, 202, inner[1:] + listed)
            return True
        name, at = read_short(inner, 1)
        if inner[0] == 203:
            count, stream, start, end = struct.unpack_from(">IQQQ", inner, at)
            assert (count, stream, start, end) == (1, 1, disk.committed, len(disk.output))
            assert all(name != known for _, known in disk.log), "a transaction's name again"
            does = self.plan.pop(0) if self.plan else "yes"
            disk.voted[name] = (does != "no", start, end)
            disk.log.append((does, name))
            self.save(instance, disk)
            if does == "gone before":
                return False
            self._control(client, 204, short(name) + struct.pack(">?", does != "no"))
            return does != "gone after"
        assert inner[0] == 205
        self._end(disk, name, bool(inner[at]))
        self.save(instance, disk)
        return True

    def _end(self, disk: Disk, name: bytes, is_commit: bool) -> None:
        disk.log.append(("commit" if is_commit else "abort", name))
        if name not in disk.voted:
            assert not is_commit, "a commit of what nothing is known of"
            return
        is_yes, start, end = disk.voted.pop(name)
        if is_commit:
            assert is_yes, "a commit of what was voted against"
            disk.committed = end
        else:
            del disk.output[start:]
