"""The demo: Market Spread live on this machine's cores, checked against an oracle.  `make demo`
runs it.

Where it runs: a process of its own, which starts `wallaroo run` and two senders and stops them
however it ends.

The course of it: a receiver listens; the application starts; the opening quotes are sent; probes
(orders that are rejected at any time) are sent until one comes back with the last of these quotes,
which proves all of them applied; then both streams flow, each over one connection.  When every
rejection that the oracle expects has arrived, or none has for a while, the run is stopped and
judged.

The streams begin at a modest rate.  It rises while the application keeps up, and falls when its
backlog grows, so that the latency is that of an application that is not overloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "market_spread"
sys.path.insert(0, str(EXAMPLE))

from market_spread_data import ORDER_FRAME, QUOTE_FRAME, Market, first  # noqa: E402  # found on the path set above
from market_spread_oracle import Judgement, Oracle  # noqa: E402
from market_spread_send import OPENING  # noqa: E402

from wallaroo.spark.local_cluster.hosts import free_ports  # noqa: E402

HOST = "127.0.0.1"
# messages a second and core, both streams together: where pacing begins and ends; the most leaves
# room for the senders on the same cores
RATE_PER_CORE_FIRST, RATE_PER_CORE_MAX = 10_000, 60_000
PACE_SECONDS = 3.0  # between two looks at the backlog
BACKLOG_SECONDS_MAX = 2.5  # of input; a run that keeps up has a batch's second or two
FASTER, SLOWER = 1.4, 0.6
STATUS_SECONDS_MAX = 5.0
STOP_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
BID_AND_OFFER = struct.Struct(">dd")
BID_AT = 31  # where bid and offer begin in a rejection's payload


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the demo waits for the application."""

    start_s: float = 120.0  # Spark's start on a small machine takes about ten
    still_s: float = 30.0  # without any new output while some is due
    probe_s: float = 0.5  # between two probes


WAITS = Waits()


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was sent, and how long it took from the first message of the streams to the last
    output.
    """

    orders: int
    quotes: int
    seconds: float
    late_ms_max: float
    rate: float


class Pacing:
    """The rate that the application sustains: it rises until the backlog grows, then falls, and
    stays.
    """

    def __init__(self, rate: float, rate_max: float) -> None:
        self.rate = rate
        self._rate_max = rate_max
        self._is_found = rate >= rate_max
        self._backlog = 0

    def look(self, backlog: int) -> None:
        """Choose the rate by how many messages wait."""
        is_growing = backlog >= self._backlog
        self._backlog = backlog
        if backlog > BACKLOG_SECONDS_MAX * self.rate:
            self._is_found = True
            if is_growing:
                self.rate *= SLOWER
        elif not self._is_found:
            self.rate = min(self.rate * FASTER, self._rate_max)
            self._is_found = self.rate == self._rate_max


class Receiver(socketserver.ThreadingTCPServer):
    """Keeps the payload of every frame that comes out of the application; shares no code with the
    product it checks.
    """

    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__((HOST, 0), _Reading)
        self.payloads: list[bytes] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def finish(self) -> None:
        """Read open connections to their end, then release the port."""
        self.shutdown()
        self.server_close()


class _Reading(socketserver.StreamRequestHandler):
    """One connection from the application."""

    def handle(self) -> None:
        payloads: list[bytes] = self.server.payloads  # type: ignore[attr-defined]  # the server is a Receiver
        while len(header := self.rfile.read(4)) == 4:
            payloads.append(self.rfile.read(int.from_bytes(header, "big")))


def main(waits: Waits = WAITS) -> int:
    """Run the demo; 0 if every output is right."""
    options = _options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        with ExitStack() as stack:
            return _demo(options, waits, stack)
    except KeyboardInterrupt:
        print("\nDemo given up.", file=sys.stderr)
        return 130
    except DemoError as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1


def _demo(options: argparse.Namespace, waits: Waits, stack: ExitStack) -> int:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wallaroo-demo-")))
    receiver = stack.enter_context(_receiving())
    market = Market.of(OPENING.read_bytes(), options.reject_share, options.seed)
    orders_port, quotes_port, status_port = free_ports(3)
    pacing = Pacing(
        options.rate or RATE_PER_CORE_FIRST * _cores(),
        options.rate or RATE_PER_CORE_MAX * _cores(),
    )
    how = "" if options.rate else ", more while the application keeps up,"
    print(
        f"Market Spread on {_cores()} cores: {len(market.opening)} symbols, of which "
        f"{len(market.rejecting)} reject orders; "
        f"{pacing.rate:,.0f} messages/s{how} "
        f"{f'for {options.seconds:g} s' if options.seconds else 'until Ctrl-C'}.\n"
        f"Dashboard, once it runs: http://{HOST}:{status_port}\n",
        flush=True,
    )
    summary = folder / "summary.json"
    run = stack.enter_context(
        _child(
            _run_command(
                orders_port,
                quotes_port,
                receiver.port,
                summary,
                ["--status", f"{HOST}:{status_port}", *options.run_options],
            )
        )
    )
    probes = _open_market(market, run, receiver, (orders_port, quotes_port), waits)
    streams = Streams(options, (orders_port, quotes_port), pacing, status_port)
    traffic, oracle = _stream(streams, market, run, receiver, probes, waits)
    _stop(run)
    receiver.finish()
    judgement = oracle.judge(receiver.payloads)
    _report(traffic, judgement, json.loads(summary.read_text()))
    return 0 if judgement.is_right else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Market Spread live on this machine's cores, checked against an oracle."
    )
    parser.add_argument(
        "--rate",
        type=int,
        default=0,
        help="messages per second, both streams together (default: what this machine sustains)",
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="0: until Ctrl-C (default: %(default)g)"
    )
    parser.add_argument(
        "--forever", dest="seconds", action="store_const", const=0.0, help="the same as --seconds 0"
    )
    parser.add_argument(
        "--reject-share",
        type=float,
        default=0.005,
        help="about this share of the orders is rejected",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "run_options", nargs="*", metavar="-- RUN-OPTION", help="handed on to `wallaroo run`"
    )
    return parser.parse_args()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _leave(number: int, frame: FrameType | None) -> None:
    """Turn a signal into an exit that cleans up."""
    raise SystemExit(128 + number)


@contextmanager
def _receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    threading.Thread(
        target=receiver.serve_forever, args=(POLL_SECONDS,), name="receiver", daemon=True
    ).start()
    try:
        yield receiver
    finally:
        receiver.finish()


@contextmanager
def _child(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own: Ctrl-C reaches the demo alone, which then ends things in
    order.
    """
    child = subprocess.Popen(command, start_new_session=True, text=True, **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                child.kill()  # the last resort: nothing may outlive the demo
                child.wait()


def _run_command(
    orders_port: int, quotes_port: int, out_port: int, summary: Path, run_options: list[str]
) -> list[str]:
    sources = f"Orders@{HOST}:{orders_port},Market Data@{HOST}:{quotes_port}"
    return [
        *(sys.executable, "-m", "wallaroo", "run", str(EXAMPLE / "market_spread.py")),
        *("--in", sources, "--out", f"{HOST}:{out_port}", "--summary", str(summary)),
        *run_options,
    ]


@dataclass(slots=True)
class Streams:
    """Both senders, and the pace at which they send."""

    options: argparse.Namespace
    ports: tuple[int, int]
    pacing: Pacing
    status_port: int
    senders: list[subprocess.Popen[str]] = field(default_factory=list)
    looked_at: float = 0.0

    def start(self, stack: ExitStack) -> None:
        """Start both senders."""
        for stream, port in zip(("orders", "quotes"), self.ports, strict=True):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.senders.append(stack.enter_context(_child(self._command(stream, port), **pipes)))
        self.looked_at = time.monotonic()

    def _command(self, stream: str, port: int) -> list[str]:
        options = self.options
        return [
            *(sys.executable, str(EXAMPLE / "market_spread_send.py"), stream, f"{HOST}:{port}"),
            *("--rate", str(self.pacing.rate / 2), "--seconds", str(options.seconds), "--paced"),
            *("--reject-share", str(options.reject_share), "--seed", str(options.seed)),
        ]

    def pace(self) -> None:
        """Every few seconds: hand the senders the rate that suits the backlog."""
        if self.options.rate or time.monotonic() - self.looked_at < PACE_SECONDS:
            return
        self.looked_at = time.monotonic()
        backlog = _backlog(self.status_port)
        if backlog is None:
            return
        self.pacing.look(backlog)
        for sender in self.senders:
            with suppress(BrokenPipeError):  # it has sent everything
                assert sender.stdin is not None
                sender.stdin.write(f"{self.pacing.rate / 2}\n")
                sender.stdin.flush()


def _backlog(port: int) -> int | None:
    """Messages that wait in the application, by its status; None where it does not answer."""
    try:
        with urlopen(f"http://{HOST}:{port}/status", timeout=STATUS_SECONDS_MAX) as answer:
            sources = json.load(answer)["sources"]
            return sum(int(source["backlog_events"]) for source in sources)
    except (OSError, ValueError, KeyError):
        return None


def _open_market(
    market: Market,
    run: subprocess.Popen[str],
    receiver: Receiver,
    ports: tuple[int, int],
    waits: Waits,
) -> int:
    """Send the opening quotes and wait until all of them are applied; how many probes that took."""
    orders_port, quotes_port = ports
    deadline = time.monotonic() + waits.start_s
    fence = market.fence()
    fence_prices = fence[-BID_AND_OFFER.size :]
    probes = 1
    with (
        _connected(quotes_port, run, deadline, waits) as quotes,
        _connected(orders_port, run, deadline, waits) as orders,
    ):
        # alone waits for Spark to start; the opening quotes' latency shall not show that
        orders.sendall(market.probe(0))
        _until(lambda: len(receiver.payloads) > 0, run, waits.start_s)
        quotes.sendall(OPENING.read_bytes() + fence)
        while not any(payload[BID_AT:].startswith(fence_prices) for payload in receiver.payloads):
            if time.monotonic() > deadline:
                raise DemoError(f"no answer to the opening quotes within {waits.start_s:g} s")
            orders.sendall(market.probe(probes))
            probes += 1
            _until(lambda seen=probes: len(receiver.payloads) >= seen, run, waits.probe_s)  # type: ignore[misc]  # a default binds now
    _until(lambda: len(receiver.payloads) >= probes, run, waits.still_s)
    return probes


def _connected(
    port: int, run: subprocess.Popen[str], deadline: float, waits: Waits
) -> socket.socket:
    while True:
        try:
            return socket.create_connection((HOST, port))
        except ConnectionRefusedError:
            _must_run(run)
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the application does not listen on port {port} after {waits.start_s:g} s"
                ) from None
            time.sleep(POLL_SECONDS)


def _until(is_so: Callable[[], bool], run: subprocess.Popen[str], seconds: float) -> bool:
    """Poll until it is so, at most for ``seconds``; whether it is."""
    deadline = time.monotonic() + seconds
    while not is_so():
        _must_run(run)
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _must_run(run: subprocess.Popen[str]) -> None:
    if run.poll() is not None:
        raise DemoError(f"`wallaroo run` ended early, with exit code {run.returncode}")


def _stream(
    streams: Streams,
    market: Market,
    run: subprocess.Popen[str],
    receiver: Receiver,
    probes: int,
    waits: Waits,
) -> tuple[Traffic, Oracle]:
    """Let both streams flow to their end; what was sent, and the oracle that has seen it."""
    started = time.monotonic()
    with ExitStack() as stack:
        streams.start(stack)
        try:
            while any(sender.poll() is None for sender in streams.senders):
                _must_run(run)
                streams.pace()
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            for sender in streams.senders:
                sender.terminate()
        orders, quotes = (_sent(sender) for sender in streams.senders)
    oracle = _oracle(market, probes, orders["sent"], quotes["sent"])
    ended = _await_outputs(oracle.expected, run, receiver, waits.still_s)
    late = max(orders["late_ms_max"], quotes["late_ms_max"])
    traffic = Traffic(orders["sent"], quotes["sent"], ended - started, late, streams.pacing.rate)
    return traffic, oracle


def _sent(sender: subprocess.Popen[str]) -> Any:
    """What a sender reports with its last line."""
    out, _ = sender.communicate(timeout=STOP_SECONDS_MAX)
    if sender.returncode != 0 or not out:
        raise DemoError(f"a sender ended with exit code {sender.returncode}")
    return json.loads(out.splitlines()[-1])


def _oracle(market: Market, probes: int, orders: int, quotes: int) -> Oracle:
    """An oracle that has seen everything that was sent, in the order of sending."""
    oracle = Oracle()
    oracle.feed_quotes(OPENING.read_bytes() + market.fence())
    for frames in first(market.quote_blocks(), QUOTE_FRAME.size, quotes):
        oracle.feed_quotes(frames)
    oracle.feed_orders(b"".join(market.probe(number) for number in range(probes)))
    for frames in first(market.order_blocks(), ORDER_FRAME.size, orders):
        oracle.feed_orders(frames)
    return oracle


def _await_outputs(
    expected: int, run: subprocess.Popen[str], receiver: Receiver, still_s: float
) -> float:
    """Wait for the outputs as long as new ones arrive; when the last one came."""
    seen, seen_at = -1, time.monotonic()
    while len(receiver.payloads) < expected and time.monotonic() - seen_at < still_s:
        if len(receiver.payloads) != seen:
            seen, seen_at = len(receiver.payloads), time.monotonic()
        _must_run(run)
        time.sleep(POLL_SECONDS)
    return time.monotonic() if len(receiver.payloads) >= expected else seen_at


def _stop(run: subprocess.Popen[str]) -> None:
    """Ask the run to end at a batch boundary, and wait for it."""
    run.terminate()
    try:
        code = run.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise DemoError(
            f"`wallaroo run` did not stop within {STOP_SECONDS_MAX:g} s of SIGTERM"
        ) from None
    if code != 0:
        raise DemoError(f"`wallaroo run` stopped with exit code {code}")


def _report(traffic: Traffic, judgement: Judgement, summary: dict[str, Any]) -> None:
    sent = traffic.orders + traffic.quotes
    print(f"\nMarket Spread, {traffic.seconds:.1f} s on {_cores()} cores")
    print(
        f"  messages in      {summary['events_in']:>14,}   {traffic.orders:,} orders, "
        f"{traffic.quotes:,} quotes, and the opening"
    )
    print(f"  rate at the end  {traffic.rate:>14,.0f}   messages/s, both streams together")
    print(f"  rejected orders  {judgement.received:>14,}")
    print(
        f"  throughput       {sent / traffic.seconds:>14,.0f}   messages/s from the first message "
        f"to the last output"
    )
    print(
        f"  late by at most  {traffic.late_ms_max:>14,.0f}   ms: a message's wait for its turn at "
        f"a sender"
    )
    print(f"\n  receipt to output, ms{'p50':>12}{'p95':>9}{'p99':>9}{'p99.9':>9}")
    for line in summary["latency"]:
        figures = "".join(
            f"{line[name]:>9,.0f}" for name in ("p50_ms", "p95_ms", "p99_ms", "p999_ms")
        )
        print(f"    {line['pipeline']:<21}{figures}")
    print(f"\n  {judgement}")


if __name__ == "__main__":
    sys.exit(main())
