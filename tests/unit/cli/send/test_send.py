"""Sending, to real sockets: what goes out, when, and what is said of it."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ingress.conftest import Running, tcp, wait_until
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.command import add_parser, summary
from wallaroo.cli.send.sending import (
    SendOptions,
    Sent,
    of_bytes,
    of_frames,
    of_lines,
    of_numbers,
    of_payloads,
    send,
    slices,
)
from wallaroo.errors import PeerError
from wallaroo.protocols.framing import (
    Framing,
    frame,
    frame_splitter,
    line_framing,
)
from wallaroo.spark.local_cluster.hosts import free_ports


class Receiver:
    """Accepts one client and keeps what it sends."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.server.getsockname()
        self.content = b""
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        client, _ = self.server.accept()
        parts = []
        while part := client.recv(1 << 20):
            parts.append(part)
        self.content = b"".join(parts)
        client.close()
        self.server.close()

    def payloads(self) -> list[bytes]:
        self.thread.join(400)
        return frame_splitter(Framing(max_size=1 << 30))(self.content)


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["send", *arguments])
    return int(args.handler(args))


def to(*receivers: Receiver) -> str:
    return ",".join(f"{host}:{port}" for host, port in (receiver.address for receiver in receivers))


def test_lines_are_framed_without_newlines_and_empty_ones_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_bytes(b"one\r\n\ntwo")
    (tmp_path / "b").write_bytes(b"three\n")
    receiver = Receiver()
    assert command("--to", to(receiver), "--file", f"{tmp_path / 'a'},{tmp_path / 'b'}") == 0
    assert receiver.payloads() == [b"one", b"two", b"three"]
    assert capsys.readouterr().out.startswith("sent 3 messages, 23 bytes in ")


def test_empty_lines_are_sent_when_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n\ntwo\n")
    receiver = Receiver()
    assert (
        command("--to", to(receiver), "--file", str(tmp_path / "a"), "--keep-empty", "--quiet") == 0
    )
    assert receiver.payloads() == [b"one", b"", b"two"]


def test_numbers_go_round_the_targets_by_batch() -> None:
    first, second = Receiver(), Receiver()
    assert (
        command(
            "--to",
            to(first, second),
            "--numbers",
            "10",
            "--batch-size",
            "3",
            "--repeat",
            "2",
            "--count",
            "17",
        )
        == 0
    )
    assert first.payloads() == [b"1", b"2", b"3", b"7", b"8", b"9", b"1", b"2", b"3", b"7"]
    assert second.payloads() == [b"4", b"5", b"6", b"10", b"4", b"5", b"6"]


def test_frames_and_raw_bytes_are_sent_as_they_are(tmp_path: Path) -> None:
    content = frame(b"a") + frame(b"") + frame(b"c" * 16_000) * 100
    (tmp_path / "a").write_bytes(content)
    for form in ("frames", "raw"):
        receiver = Receiver()
        assert command("--to", to(receiver), "--file", str(tmp_path / "a"), "--form", form) == 0
        receiver.thread.join(400)
        assert receiver.content == content


def test_a_rate_is_kept_by_schedule_and_duration_ends_it() -> None:
    receiver = Receiver()
    sent = send(
        [receiver.address],
        lambda: of_numbers(1000),
        SendOptions(rate=2000, duration_s=0.25, repeat=0),
    )
    assert 0.24 < sent.seconds < 30
    assert sent.messages <= 2000 * 0.25 + 20
    assert sent.messages >= 2000 * (sent.seconds - sent.lag_s) * 0.5
    assert len(receiver.payloads()) == sent.messages


def test_messages_are_cut_alike_however_they_are_batched() -> None:
    blocks = [
        of_payloads([b"x" * number for number in range(50)]),
        of_lines(b""),
        of_payloads([b"y"]),
    ]
    whole = b"".join(block.content for block in blocks)
    for batch_size in (None, 1, 7, 1000):
        parts = list(slices(lambda: blocks, SendOptions(batch_size=batch_size)))
        assert b"".join(part for part, _ in parts) == whole
        assert sum(number for _, number in parts) == 51
    assert list(slices(lambda: [of_lines(b"")], SendOptions(repeat=0))) == []
    assert list(of_bytes(b"x" * 600_000).ends) == [262144, 524288, 600000]


def test_half_a_frame_is_refused_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PeerError, match="byte 5: a frame's payload of 9 bytes is cut off"):
        of_frames(frame(b"a") + b"\0\0\0\x09b")
    (tmp_path / "a").write_bytes(b"abcdefgh")
    assert command("--to", "127.0.0.1:1", "--file", str(tmp_path / "a"), "--form", "frames") == 1
    assert f"{tmp_path / 'a'}, byte 0" in capsys.readouterr().err


WRONG = {
    "--to x --numbers 1": "is not of the form HOST:PORT",
    "--to h:1 --file x --form frames --framing lines": "--framing lines has no headers",
    "--to h:1 --numbers 0": "--numbers must be greater than 0",
    "--to h:1 --numbers 1 --rate -1": "--rate must be greater than 0",
    "--to h:1 --numbers 1 --repeat -1": "--repeat must be 0",
    "--to h:1 --file x --form raw --rate 5": "--form raw knows none",
    "--to h:1 --numbers 1 --stream s --repeat 2": "--stream sends all once",
    "--to h:1 --numbers 1 --secret-file f": "--secret-file goes with --stream",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_option_is_reported_in_words(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*arguments.split()) == 2
    assert WRONG[arguments] in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--to", "h:1", "--file", "absent") == 1
    assert "absent cannot be read: No such file or directory" in capsys.readouterr().err


def test_an_absent_target_is_an_error_after_the_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    assert command("--to", f"127.0.0.1:{port}", "--numbers", "1", "--connect-timeout", "0.2") == 1
    said = capsys.readouterr().err
    assert "cannot connect to 127.0.0.1" in said
    assert "`wallaroo send --connect-timeout SECONDS` waits longer." in said


def test_a_target_that_goes_away_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        leaving = threading.Thread(target=lambda: server.accept()[0].close())
        leaving.start()
        with pytest.raises(PeerError, match="closed the connection after at most"):
            send([server.getsockname()], lambda: of_numbers(100_000), SendOptions(repeat=0))
        leaving.join()


@pytest.mark.parametrize("options", [(), ("--stream", "s")])
def test_a_message_that_the_application_refuses_is_an_error(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """The application closes the connection; what follows the message is not taken for sent."""
    running.start(tcp(max_size=100), is_acknowledged=True)
    addresses = running.feeders.ack_addresses if options else running.feeders.addresses
    host, port = addresses["In"]
    for lines in ([b"small", b"x" * 101, b"after"], [b"small", b"x" * 101]):
        (tmp_path / "messages").write_bytes(b"\n".join(lines))
        arguments = ("--to", f"{host}:{port}", "--file", str(tmp_path / "messages"), *options)
        assert command(*arguments) == 1
        assert "refuse" in capsys.readouterr().err


def test_lines_are_sent_as_lines(running: Running, tmp_path: Path) -> None:
    running.start(tcp(framing="lines"))
    (tmp_path / "a").write_bytes(b"one\r\n\ntwo")
    host, port = running.feeders.addresses["In"]
    target = f"{host}:{port}"
    assert command("--to", target, "--file", str(tmp_path / "a"), "--framing", "lines") == 0
    assert command("--to", target, "--numbers", "3", "--framing", "lines") == 0
    source = running.source(framing=line_framing())
    assert source.wait_for(5) == [b"one", b"two", b"1", b"2", b"3"]


def test_a_time_too_short_gives_no_rate() -> None:
    assert summary(Sent(3000, 189355, 0.0001, 0.0), None) == (
        "sent 3,000 messages, 189,355 bytes in 0.00 s"
    )


def test_what_is_not_read_yet_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sent = send([server.getsockname()], lambda: of_numbers(10), SendOptions(read_timeout_s=0.1))
    assert not sent.is_read
    assert summary(sent, None).endswith("the other side has not read all of it yet")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    run = Running(tmp_path)
    yield run
    run.feeders.stop()


def test_a_stream_is_continued_with_its_secret_file_only(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running.start(tcp(), is_acknowledged=True)
    host, port = running.feeders.ack_addresses["In"]
    hers, his, empty = (tmp_path / name for name in ("hers", "his", "empty"))
    hers.write_text("hers\n")
    his.write_text("his\n")
    empty.write_text("\n")
    send_numbers = ("--to", f"{host}:{port}", "--stream", "s", "--numbers")
    assert command(*send_numbers, "3", "--secret-file", str(hers)) == 0
    assert command(*send_numbers, "5", "--secret-file", str(his)) == 1
    assert "began with another secret" in capsys.readouterr().err
    assert command(*send_numbers, "5", "--secret-file", str(empty)) == 1
    assert "holds no secret of 1 to 255 bytes" in capsys.readouterr().err
    assert command(*send_numbers, "5", "--secret-file", str(tmp_path / "none")) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert command(*send_numbers, "5", "--secret-file", str(hers)) == 0
    assert len(running.source().wait_for(5)) == 5


def test_an_acknowledged_stream_is_complete_after_kills_of_the_ingress(running: Running) -> None:
    running.start(tcp(), is_durable=True, is_acknowledged=True)
    counts: list[int] = []
    messages = of_payloads([b"%d" % number for number in range(3000)])
    target = running.feeders.ack_addresses["In"]
    sending = threading.Thread(
        target=send_acknowledged,
        args=(target, "numbers", messages),
        kwargs={"rate": 4000, "on_count": counts.append},
    )
    sending.start()
    for kill in (500, 1500):
        wait_until(lambda: counts and counts[-1] >= kill)  # noqa: B023  # used at once
        os.kill(running.feeders.pids["ingress"], signal.SIGKILL)
        seen = len(running.log)
        wait_until(lambda: running.feeders.poll() or "SIGKILL" in "".join(running.log[seen:]))  # noqa: B023  # used at once
    sending.join(400)
    assert counts == sorted(counts)
    assert counts[-1] == 3000
    assert running.source().payloads() == [b"%d" % number for number in range(3000)]
    again = send_acknowledged(target, "numbers", messages)
    assert (again.messages, again.size_bytes) == (0, 0)
