"""``wallaroo receive``: printing, saving or counting an application's output.

Where it runs: a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from wallaroo.cli.receive.receiver import FORMS, OutputTotals, Receiver, listen_address
from wallaroo.cli.terminal.kafka_address import SCHEME, add_kafka_options, is_kafka, kafka_address
from wallaroo.cli.terminal.parser import EXIT_USAGE, add_header
from wallaroo.errors import PeerError, PipelineError, WallarooError, optional_library

OUT_BUFFER_BYTES = 1 << 20
FLUSH_S = 0.2  # how long printed output may stay in the buffer


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "receive",
        allow_abbrev=True,
        help="print, save or count output received over TCP or from a Kafka topic",
    )
    _add_origin(parser)
    _add_form(parser)
    _add_results(parser)
    parser.set_defaults(handler=main)


def _add_origin(parser: argparse.ArgumentParser) -> None:
    """Add the options for the origin of the output."""
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument(
        "--listen", "-l", metavar="HOST:PORT", help="where to listen; port 0 picks a free one"
    )
    place.add_argument(
        "--from",
        dest="topic",
        metavar="kafka://HOST:PORT/TOPIC",
        help="read a topic from its beginning, committed records only, one per line",
    )
    parser.add_argument(
        "--latest", action="store_true", help="Kafka: start with records that arrive from now on"
    )
    parser.add_argument(
        "--until-now", action="store_true", help="Kafka: stop at the topic's present end"
    )
    add_kafka_options(parser)


def _add_form(parser: argparse.ArgumentParser) -> None:
    """Add the options for the separation of messages."""
    parser.add_argument(
        "--form",
        choices=FORMS,
        default="raw",
        help="raw: bytes as received (default); frames: header and payload; lines",
    )
    add_header(parser, "frames: ")


def _add_results(parser: argparse.ArgumentParser) -> None:
    """Add the options for the use of the output, and for the end of the command."""
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write to FILE instead of standard output"
    )
    parser.add_argument(
        "--count", type=int, metavar="N", help="frames, lines and records: stop after N of them"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="stop after this time, with exit code 1 if --count is not reached",
    )
    parser.add_argument("--no-write", "-n", action="store_true", help="count only")
    parser.add_argument(
        "--quiet", "-q", action="store_true", help="print only errors on standard error"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help=(
            "raw, with --out: append to FILE and report to a sink with resume=True where to "
            "continue; exactly once"
        ),
    )


def main(args: argparse.Namespace) -> int:
    """Receive until count, timeout or Ctrl-C; return 0 (complete), 1 (not) or 2 (bad option).

    As for all commands, it is also 1 if something outside is missing or wrong.
    """
    if problem := _problem(args):
        print(f"wallaroo receive: {problem}", file=sys.stderr)
        return EXIT_USAGE
    try:
        host, port = ("", 0) if args.topic else listen_address(args.listen)
    except WallarooError as error:
        print(f"wallaroo receive: {error}", file=sys.stderr)
        return EXIT_USAGE
    try:
        if args.topic:
            return _receive_records(args)
        with _output(args) as out:
            resume_at = args.out.stat().st_size if args.resume else 0
            with Receiver(
                host,
                port,
                args.form,
                args.header_length,
                args.length_fmt,
                out,
                is_keeping=False,
                is_resuming=args.resume,
                resume_at=resume_at,
            ) as receiver:
                _say(args, "Listening on {}:{}".format(*receiver.address))
                is_complete = _watch(receiver, out, args)
            _say(args, _summary(receiver, args.form))
            return _verdict(receiver, args, is_complete)
    except BrokenPipeError:
        raise  # the reader of standard output has exited
    except (WallarooError, OSError, ValueError) as error:
        print(f"wallaroo receive: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, ValueError | PipelineError) else 1


def _receive_records(args: argparse.Namespace) -> int:
    with optional_library("Kafka", "confluent-kafka", "here"):
        from wallaroo.cli.receive.kafka import TopicReader, receive_records
    totals = OutputTotals()
    is_complete = False
    with _output(args) as out, contextlib.suppress(KeyboardInterrupt):
        address = kafka_address(args.topic, args.kafka_option)
        with contextlib.closing(TopicReader(address, from_end=args.latest)) as reader:
            _say(args, f"Reading {address}")
            is_complete = receive_records(
                reader,
                out,
                totals,
                count=args.count if args.count is not None else sys.maxsize,
                until=time.monotonic() + args.timeout if args.timeout is not None else float("inf"),
                ends_at_end=args.until_now,
                flush_s=FLUSH_S,
                separator=args.key_separator,
            )
    _say(args, f"Received {totals.messages} records, {totals.bytes} bytes{_rate(totals)}")
    if args.count is not None and totals.messages < args.count:
        missing = args.count - totals.messages
        why = "at the end of the topic" if is_complete else "when the time was over"
        print(
            f"wallaroo receive: {missing} of {args.count} records missing {why}.", file=sys.stderr
        )
        return 1
    return 0


def _rate(totals: OutputTotals) -> str:
    seconds = (totals.last_ns - totals.first_ns) / 1e9
    return f" in {seconds:.1f} s ({totals.messages / seconds:.0f} records/s)" if seconds > 0 else ""


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(text, file=sys.stderr, flush=True)


def _problem(args: argparse.Namespace) -> str:
    if args.topic and (args.form != "raw" or args.resume or not is_kafka(args.topic)):
        return (
            f"--from reads records of {SCHEME}HOST:PORT/TOPIC; leave out --form and --resume. To "
            f"listen, use --listen HOST:PORT."
        )
    if not args.topic and (args.latest or args.until_now):
        return "--latest and --until-now are for --from kafka://HOST:PORT/TOPIC."
    if args.count is not None and args.form == "raw" and not args.topic:
        return "--count counts messages; add --form frames or --form lines."
    if args.resume and (args.form != "raw" or args.out is None or args.no_write):
        return (
            "--resume continues a file of raw bytes; use it with --out FILE, without "
            "--no-write, and with --form raw."
        )
    return ""


@contextlib.contextmanager
def _output(args: argparse.Namespace) -> Iterator[BinaryIO | None]:
    if args.no_write:
        yield None
    elif args.out is not None:
        try:
            file = args.out.open("ab" if args.resume else "wb", buffering=OUT_BUFFER_BYTES)
        except OSError as error:
            raise PeerError(
                f"--out: {args.out.absolute()} cannot be written: {error.strerror}. Name a file in "
                f"a folder that exists and may be written to."
            ) from None
        with file:
            yield file
    else:
        with os.fdopen(os.dup(1), "wb", buffering=OUT_BUFFER_BYTES) as file:
            yield file


def _watch(receiver: Receiver, out: BinaryIO | None, args: argparse.Namespace) -> bool:
    """Wait for the count or the timeout, flushing; return whether everything requested arrived."""
    deadline = time.monotonic() + args.timeout if args.timeout is not None else float("inf")
    wanted = args.count if args.count is not None else sys.maxsize
    try:
        while receiver.error is None:
            if receiver.wait_for(wanted, min(FLUSH_S, max(0.0, deadline - time.monotonic()))):
                return True
            if out is not None:
                out.flush()
            if time.monotonic() >= deadline:
                return args.count is None
    except KeyboardInterrupt:
        return args.count is None
    return False


def _summary(receiver: Receiver, form: str) -> str:
    totals = receiver.totals
    seconds = (totals.last_ns - totals.first_ns) / 1e9
    text = f"Received {totals.bytes} bytes"
    if form != "raw":
        text += f", {totals.messages} {form}"
    text += f" on {totals.connections} connection{'s' if totals.connections != 1 else ''}"
    if seconds > 0:
        text += f" in {seconds:.1f} s ({totals.bytes / seconds / 1e6:.1f} MB/s"
        text += ")" if form == "raw" else f", {totals.messages / seconds:.0f} {form}/s)"
    if totals.cut_off:
        text += (
            f"; {totals.cut_off} connection{'s' if totals.cut_off != 1 else ''} ended inside "
            f"a message"
        )
    return text


def _verdict(receiver: Receiver, args: argparse.Namespace, is_complete: bool) -> int:
    if isinstance(receiver.error, BrokenPipeError):
        raise receiver.error
    if receiver.error is not None:
        print(
            f"wallaroo receive: cannot write the output: {receiver.error}. Free space, or choose "
            f"another --out.",
            file=sys.stderr,
        )
        return 1
    if not is_complete:
        missing = args.count - receiver.count
        print(
            f"wallaroo receive: {missing} of {args.count} {args.form} missing at the timeout.",
            file=sys.stderr,
        )
    return 0 if is_complete else 1
