"""`wallaroo receive` and its receiver, over real sockets."""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wallaroo.cli.receive import command as receive
from wallaroo.cli.receive.receiver import Receiver, frame_cutter, listen_address
from wallaroo.errors import PeerError, WallarooError

SECONDS = 400.0
PROGRAM = """
import argparse, sys
from wallaroo.cli.receive import command as receive
parser = argparse.ArgumentParser()
receive.add_parser(parser.add_subparsers())
args = parser.parse_args(["receive", *sys.argv[1:]])
sys.exit(args.handler(args))
"""
SOURCE = Path(__file__).parents[4] / "src"


def command(*options: str, fed: bytes = b"", is_feeding: bool = True) -> tuple[int, bytes, str]:
    """Run the command on a free port, feed it over one connection; exit code, output, messages."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--listen", "127.0.0.1:0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(SOURCE)},
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline().decode()
        if is_feeding:
            with socket.create_connection(listen_address(first.split()[-1])) as sock:
                sock.sendall(fed)
        out, rest = process.communicate(timeout=SECONDS)
    return process.returncode, out, first + rest.decode()


def arguments(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    receive.add_parser(parser.add_subparsers())
    return parser.parse_args(["receive", *options])


def frames(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


def test_a_file_that_cannot_be_written_is_named_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "absent" / "out"
    assert receive.main(arguments("--listen", "127.0.0.1:0", "--out", str(path))) == 1
    assert capsys.readouterr().err == (
        f"wallaroo receive: --out: {path} cannot be written: No such file or directory. Name a "
        f"file in a folder that exists and may be written to.\n"
    )


def test_frames_are_printed_as_lines_and_the_command_ends_at_the_count() -> None:
    code, out, messages = command(
        "--form", "frames", "--count", "3", fed=frames(b"one", b"", b"three")
    )
    assert (code, out) == (0, b"one\n\nthree\n")
    assert messages.startswith("Listening on 127.0.0.1:")
    assert "3 frames on 1 connection" in messages


def test_another_header_is_understood() -> None:
    code, out, _ = command(
        "--form",
        "frames",
        "--header-length",
        "2",
        "--length-fmt",
        "<H",
        "--count",
        "1",
        fed=b"\3\0abc",
    )
    assert (code, out) == (0, b"abc\n")


def test_raw_bytes_come_out_as_they_are_and_into_a_file(tmp_path: Path) -> None:
    code, out, messages = command("--timeout", "0.5", "--out", str(tmp_path / "o"), fed=b"a\0b")
    assert (code, out, (tmp_path / "o").read_bytes()) == (0, b"", b"a\0b")
    assert "Received 3 bytes on 1 connection" in messages


def test_what_is_missing_when_the_time_is_over_is_said_with_exit_code_1() -> None:
    code, _, messages = command(
        "--form", "lines", "--count", "5", "--timeout", "0.5", "--no-write", fed=b"a\nb\nhalf"
    )
    assert code == 1
    assert "3 of 5 lines missing" in messages
    assert "1 connection ended inside a message" in messages


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "127.0.0.1:0", "--count", "3"], "add --form frames"),
        (["--listen", "127.0.0.1:0", "--resume"], "use it with --out FILE"),
        (["--listen", "nowhere"], "not of the form HOST:PORT"),
        (
            ["--listen", "127.0.0.1:0", "--form", "frames", "--length-fmt", ">H"],
            "reads 2 bytes, the header has 4",
        ),
    ],
)
def test_a_wrong_option_is_reported_with_its_fix(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = arguments(*options)
    assert args.handler(args) == 2
    assert said in capsys.readouterr().err


def test_a_busy_port_is_an_error_that_names_it() -> None:
    with Receiver() as receiver, pytest.raises(PeerError, match=str(receiver.address[1])):
        Receiver(port=receiver.address[1])


def test_simultaneous_and_successive_connections_are_all_taken() -> None:
    with Receiver(form="frames") as receiver:
        socks = [socket.create_connection(receiver.address) for _ in range(3)]
        for number, sock in enumerate(socks):
            sock.sendall(frames(b"%d" % number)[:3])
        for number, sock in enumerate(socks):
            sock.sendall(frames(b"%d" % number)[3:])
            sock.close()
        assert receiver.wait_for(3, SECONDS)
        with socket.create_connection(receiver.address) as sock:
            sock.sendall(frames(b"later"))
        assert receiver.wait_for(4, SECONDS)
        assert sorted(receiver.payloads) == [b"0", b"1", b"2", b"later"]
        assert [count for _, count in receiver.timestamps][-1] == 4
        assert receiver.totals.connections == 4


@pytest.mark.parametrize("size", [1, 3, 7])
def test_frames_cut_anywhere_come_out_whole(size: int) -> None:
    stream, cut, buffer, found = (
        frames(b"a", b"", b"bcd" * 5),
        frame_cutter(4, ">I"),
        bytearray(),
        [],
    )
    for place in range(0, len(stream), size):
        buffer += stream[place : place + size]
        found += cut(buffer)
    assert found == [b"a", b"", b"bcd" * 5]
    assert not buffer


def test_an_address_may_be_ipv6_and_nonsense_is_refused() -> None:
    assert listen_address("[::1]:7002") == ("::1", 7002)
    with pytest.raises(WallarooError, match="HOST:PORT"):
        listen_address("7002")


def test_connections_that_replace_each_other_at_once_leave_the_last_one(
    eventually: Callable[..., None],
) -> None:
    """The egress reconnected twice before the receiver looked: what the older connections brought
    is sent again on the last one.
    """
    receiver = Receiver(is_resuming=True)
    connections = [socket.create_connection(receiver.address) for _ in range(3)]
    for number, connection in enumerate(connections):
        connection.sendall(b"%d" % number)
    with receiver:
        eventually(lambda: receiver.payloads[-1:] == [b"2"], "the last connection is read")
    for connection in connections:
        connection.close()
