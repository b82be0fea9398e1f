"""``wallaroo send``: a sender to TCP sources and Kafka topics.

Where it runs: a process of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wallaroo.cli.send import sending
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.terminal.kafka_address import (
    KafkaAddress,
    add_kafka_options,
    is_kafka,
    kafka_address,
)
from wallaroo.cli.terminal.parser import add_header
from wallaroo.errors import PeerError, WallarooError, optional_library
from wallaroo.network.reachability import parse_address
from wallaroo.network.tls_sockets import Address
from wallaroo.protocols.framing import Framing, line_framing

RATE_S_MIN = 0.01  # a shorter time yields no rate worth printing
FORMS = ("lines", "frames", "raw")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "send",
        allow_abbrev=True,
        help="send frames, lines or numbers to an application over TCP, or to Kafka",
    )
    _add_messages(parser)
    _add_form(parser)
    _add_course(parser)
    add_kafka_options(parser)
    parser.add_argument("--quiet", "-q", action="store_true", help="print no summary")
    parser.set_defaults(handler=main)


def _add_messages(parser: argparse.ArgumentParser) -> None:
    """Add the options for the messages and their targets."""
    parser.add_argument(
        "--to",
        "-t",
        required=True,
        metavar="HOST:PORT[,HOST:PORT]",
        help=(
            "targets, which get batches in turn; or kafka://HOST:PORT/TOPIC, a record per message"
        ),
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--file", "-f", metavar="FILE[,FILE]", help="files to send, in order")
    what.add_argument("--numbers", type=int, metavar="N", help="send the numbers 1 to N as text")


def _add_form(parser: argparse.ArgumentParser) -> None:
    """Add the options for the separation of messages."""
    parser.add_argument(
        "--form",
        choices=FORMS,
        default="lines",
        help=(
            "content of the file. lines: a message per non-empty line (default); frames: messages "
            "with their headers; raw: bytes, sent unchanged"
        ),
    )
    parser.add_argument(
        "--framing",
        choices=("length", "lines"),
        default="length",
        help=(
            "length: each message follows a header with its length (default); lines: a newline "
            "follows each message, for sources with framing='lines'"
        ),
    )
    parser.add_argument("--keep-empty", action="store_true", help="lines: include empty ones")
    add_header(parser)


def _add_course(parser: argparse.ArgumentParser) -> None:
    """Add the options for rate, number, duration and acknowledgements."""
    parser.add_argument(
        "--rate",
        "-r",
        type=float,
        metavar="N",
        help="messages per second, by schedule (default: as fast as possible)",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="send everything N times; 0: forever (default 1)",
    )
    parser.add_argument("--count", type=int, metavar="N", help="stop after N messages")
    parser.add_argument("--batch-size", type=int, metavar="N", help="messages sent at once")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="stop after this time")
    parser.add_argument(
        "--connect-timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to retry connecting (default 10)",
    )
    parser.add_argument(
        "--stream",
        metavar="NAME",
        help=(
            "send with acknowledgements, to the application's port for them; resumes where NAME "
            "stopped"
        ),
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help=(
            "with --stream: send the secret in FILE with NAME; from then on only senders with it "
            "may continue the stream"
        ),
    )


def main(args: argparse.Namespace) -> int:
    """Send, print a summary; return 0 (sent), 1 (target or file unavailable) or 2 (bad option)."""
    try:
        targets = [] if is_kafka(args.to) else parse_targets(args.to)
        _check(args, targets)
        blocks = _blocks(args)
        topic = kafka_address(args.to, args.kafka_option) if is_kafka(args.to) else None
    except (ValueError, OSError, WallarooError) as error:
        print(f"wallaroo send: {error}", file=sys.stderr)
        return 1 if isinstance(error, (OSError, PeerError)) else 2
    options = sending.SendOptions(
        args.rate, args.repeat, args.count, args.batch_size, args.duration, args.connect_timeout
    )
    try:
        if topic is not None:
            sent = _send_records(topic, blocks, options, args)
        elif args.stream:
            sent = send_acknowledged(
                targets[0],
                args.stream,
                _one_block(blocks),
                connect_timeout_s=args.connect_timeout,
                rate=args.rate,
                secret=_secret(args.secret_file),
            )
        else:
            sent = sending.send(targets, blocks, options)
    except KeyboardInterrupt:
        return 1
    except WallarooError as error:
        print(f"wallaroo send: {error}", file=sys.stderr)
        return 1
    if not args.quiet:
        print(summary(sent, args.rate, is_counted=args.form != "raw" or args.numbers is not None))
    return 0


def _send_records(
    topic: KafkaAddress,
    blocks: sending.Blocks,
    options: sending.SendOptions,
    args: argparse.Namespace,
) -> sending.Sent:
    with optional_library("Kafka", "confluent-kafka", "here"):
        from wallaroo.cli.send.kafka import send_records
    overhead = _framing(args).overhead
    return send_records(topic, blocks, overhead, options, separator=args.key_separator)


def parse_targets(text: str) -> list[Address]:
    """Parse ``HOST:PORT,HOST:PORT``.  Raises ValueError with a sentence for users."""
    targets = []
    for part in text.split(","):
        target = parse_address(part)
        if target is None or not target[1]:
            raise ValueError(f"--to: {part.strip()!r} is not of the form HOST:PORT.")
        targets.append(target)
    return targets


def summary(sent: sending.Sent, rate: float | None, *, is_counted: bool = True) -> str:
    """Return one line about what was sent.

    >>> summary(sending.Sent(1000, 50000, 2.0, 0.0125), 500.0)
    'sent 1,000 messages, 50,000 bytes in 2.00 s: 500 messages/s, at most 12.5 ms behind schedule'
    """
    counted = f"{sent.messages:,} messages, " if is_counted else ""
    text = f"sent {counted}{sent.size_bytes:,} bytes in {sent.seconds:.2f} s"
    if sent.seconds >= RATE_S_MIN and is_counted:
        text += f": {sent.messages / sent.seconds:,.0f} messages/s"
    elif sent.seconds >= RATE_S_MIN:
        text += f": {sent.size_bytes / sent.seconds / 1e6:,.1f} MB/s"
    if rate:
        text += f", at most {sent.lag_s * 1000:.1f} ms behind schedule"
    return text if sent.is_read else f"{text}; the other side has not read all of it yet"


def _check(args: argparse.Namespace, targets: list[Address]) -> None:
    for name in ("rate", "count", "batch_size", "duration", "numbers"):
        value = getattr(args, name)
        if value is not None and value <= 0:
            raise ValueError(f"--{name.replace('_', '-')} must be greater than 0.")
    if args.repeat < 0:
        raise ValueError("--repeat must be 0 (forever) or more.")
    if args.form == "raw" and args.numbers is None and (args.rate or args.count or args.batch_size):
        raise ValueError(
            "--rate, --count and --batch-size count messages; --form raw knows none. Use --form "
            "frames."
        )
    if args.framing == "lines" and args.form == "frames":
        raise ValueError("--framing lines has no headers; leave out --form frames.")
    if is_kafka(args.to) and (args.stream or args.form == "raw" or args.framing == "lines"):
        raise ValueError(
            "to Kafka every message is a record; leave out --stream, --form raw and --framing "
            "lines."
        )
    if args.secret_file is not None and not args.stream:
        raise ValueError("--secret-file goes with --stream; name the stream.")
    if args.stream and (
        len(targets) > 1 or args.repeat != 1 or args.count or args.duration or args.form == "raw"
    ):
        raise ValueError(
            "--stream sends all once to one target; leave out --repeat, --count, --duration and "
            "--form raw."
        )


def _blocks(args: argparse.Namespace) -> sending.Blocks:
    framing = _framing(args)
    if args.numbers is not None:
        last = args.numbers
        return lambda: sending.of_numbers(last, framing)
    found = [_read(Path(name), args, framing) for name in args.file.split(",")]
    return lambda: found


def _secret(file: Path | None) -> bytes:
    if file is None:
        return b""
    try:
        secret = file.read_bytes().strip()
    except OSError as error:
        raise PeerError(
            f"--secret-file: {file} cannot be read: {error.strerror}. Name a file with the "
            f"stream's secret."
        ) from None
    if not 1 <= len(secret) <= 255:
        raise PeerError(f"--secret-file: {file} holds no secret of 1 to 255 bytes. Write one.")
    return secret


def _framing(args: argparse.Namespace) -> Framing:
    if args.framing == "lines":
        return line_framing(sending.PAYLOAD_BYTES_MAX)
    return Framing(args.header_length, args.length_fmt, sending.PAYLOAD_BYTES_MAX)


def _read(path: Path, args: argparse.Namespace, framing: Framing) -> sending.Messages:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PeerError(
            f"--file: {path.absolute()} cannot be read: {error.strerror}. Files are separated by "
            f"commas, without spaces."
        ) from None
    if args.form == "raw":
        return sending.of_bytes(content)
    if args.form == "lines":
        return sending.of_lines(content, keeps_empty=args.keep_empty, framing=framing)
    try:
        return sending.of_frames(content, framing)
    except PeerError as error:
        raise PeerError(f"{path}, {error}") from None


def _one_block(blocks: sending.Blocks) -> sending.Messages:
    found = list(blocks())
    whole = sending.Messages(b"".join(block.content for block in found), found[0].ends[:0])
    shift = 0
    for block in found:
        whole.ends.extend(end + shift for end in block.ends)
        shift += len(block.content)
    return whole
