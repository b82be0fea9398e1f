"""Another user of this machine, who speaks Spark's network protocol and others to every port.

The protocol is that of Spark's public classes ``org.apache.spark.network.protocol.Message`` and
``org.apache.spark.network.shuffle.protocol.BlockTransferMessage``: a frame is its length (8 bytes,
its own among them), a type (1 byte), and the message.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil

STRANGER = 65534
ANSWER_S_MAX = 20.0  # for a port to answer or to close
QUIET_S = 5.0  # without an answer from any port: there will be none
BYTES_MAX = 1 << 20
RPC_RESPONSE, CHUNK, STREAM = 4, 1, 7  # answers that hold what was asked for


def _frame(kind: int, message: bytes) -> bytes:
    return struct.pack(">qb", 9 + len(message), kind) + message


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _rpc(number: int, body: bytes) -> bytes:
    return _frame(3, struct.pack(">qi", number, len(body)) + body)


def _blocks(*names: str) -> bytes:
    """Return what asks the block manager of a driver for blocks."""
    return (
        b"\x00"
        + _text("app")
        + _text("driver")
        + struct.pack(">i", len(names))
        + b"".join(map(_text, names))
    )


def _object(endpoint: str) -> bytes:
    """Return a call of an RPC endpoint, whose argument is no serialized object."""
    name = endpoint.encode()
    return b"\x00\x00" + struct.pack(">H", len(name)) + name + b"\x03any"


REQUESTS = {
    "a broadcast": b"".join(_rpc(n, _blocks(f"broadcast_{n}_piece0")) for n in range(64)),
    "shuffle blocks": b"".join(
        _rpc(shuffle * 100 + task, _blocks(f"shuffle_{shuffle}_{task}_0"))
        for shuffle in range(16)
        for task in range(40)
    ),
    "a chunk": _frame(0, struct.pack(">qi", 0, 0)),
    "a stream": _frame(6, _text("/files/any")),
    "an upload": _rpc(1, b"\x01" + b"".join(map(_text, ("app", "driver", "rdd_0_0", "", "any")))),
    "an object": _rpc(2, _object("endpoint-verifier")),
    "an object, one way": _frame(9, struct.pack(">i", 99) + _object("HeartbeatReceiver")),
    "a login without a secret": _rpc(3, b"\xea" + _text("sparkSaslUser") + _text("")),
    "py4j": b"c\nt\ngetSparkHome\ne\n",
    "a web page": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a web page of data": b"GET /json/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


def answers_of(data: bytes) -> list[int]:
    """Return the types of Spark's frames at the front of an answer."""
    kinds = []
    while len(data) >= 9:
        length, kind = struct.unpack(">qb", data[:9])
        if not 9 <= length < 1 << 31:
            break
        kinds.append(kind)
        data = data[length:]
    return kinds


def requests() -> dict[str, bytes]:
    """Return the requests, one of them for the files of the runs that everybody can see."""
    runs = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("wallaroo-")]
    files = b"".join(_frame(6, _text(f"/files/{run}.zip")) for run in runs)
    return {**REQUESTS, "the application": files}


Listening = tuple[str, int]


def listening(processes: Iterable[psutil.Process]) -> tuple[set[Listening], set[str]]:
    """Return the ports and the Unix sockets that processes and their descendants listen on."""
    ports, paths = set(), set()
    for root in processes:
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in process.net_connections("all"):
                    if one.status == psutil.CONN_LISTEN:
                        ports.add((one.laddr.ip.removeprefix("::ffff:"), one.laddr.port))
                    elif one.family == socket.AF_UNIX and one.laddr:
                        paths.add(str(one.laddr))
    return ports, paths


def as_stranger(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns, as JSON knows it, in a process of another user."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            with open(write, "w") as out:
                json.dump(work(), out)
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def said_to(ports: Iterable[Listening]) -> list[tuple[int, str, str, str]]:
    """Make every request at every port; return port, request, and the answer as Latin-1."""
    waiting: dict[socket.socket, tuple[int, str]] = {}
    answers: dict[tuple[int, str], bytes] = {}
    for host, port in ports:
        for name, request in requests().items():
            connection = socket.create_connection((host or "127.0.0.1", port), 10)
            with contextlib.suppress(OSError):
                connection.sendall(request)
            waiting[connection] = (port, name)
            answers[port, name] = b""
    until = time.monotonic() + ANSWER_S_MAX
    while waiting and time.monotonic() < until:
        answering = select.select(list(waiting), (), (), QUIET_S)[0]
        if not answering:
            break
        for connection in answering:
            data = b""
            with contextlib.suppress(OSError):
                data = connection.recv(65536)
            answers[waiting[connection]] += data
            if not data or len(answers[waiting[connection]]) > BYTES_MAX:
                del waiting[connection]
                connection.close()
    closed = set(answers) - set(waiting.values())
    return [
        (port, name, data.decode("latin-1"), "closed" if (port, name) in closed else "open")
        for (port, name), data in answers.items()
    ]


def reached(paths: Iterable[str]) -> list[str]:
    """Return the Unix sockets that take a connection."""
    taken = []
    for path in paths:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            taken.append(path)
    return taken
