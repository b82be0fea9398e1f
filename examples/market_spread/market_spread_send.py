"""Send one of Market Spread's two streams at a steady rate, then say how much was sent.

    python market_spread_send.py orders 127.0.0.1:7010 --rate 60000 --seconds 60
    python market_spread_send.py quotes 127.0.0.1:7011 --rate 60000 --seconds 60

The schedule is open-loop: what is due is due whether or not the receiver keeps up, so a receiver
that was slow for a moment gets the rest at once.  With --paced every line of standard input is a
new rate.  SIGTERM and SIGINT end the stream after a whole frame.  The last line of output is a JSON
object: ``sent`` messages, ``seconds``, and ``late_ms_max``, the longest time that a message had to
wait for its turn.

Where it runs: a process of its own.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from market_spread_data import ORDER_FRAME, QUOTE_FRAME, Market

OPENING = Path(__file__).with_name("350_symbols_initial_nbbo.msg")
TICK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Sent:
    """What left."""

    sent: int
    seconds: float
    late_ms_max: float


class Stop:
    """Becomes true when a signal asks for the end."""

    def __init__(self) -> None:
        self.is_asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.is_asked = True


class Pace:
    """How many messages are due, at a rate that may change on the way."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._due = 0.0
        self._at = 0.0

    def due(self, now: float) -> int:
        """Messages that are due ``now`` seconds after the start."""
        self._due += self.rate * (now - self._at)
        self._at = now
        return int(self._due + 1e-6)

    def follow(self, lines: Iterable[str]) -> None:
        """Take each line's number as the rate from then on."""
        for line in lines:
            self.rate = float(line)


class Frames:
    """The next so many frames of endless blocks, as views of the blocks: send a piece before taking
    the next.
    """

    def __init__(self, blocks: Iterator[bytearray], frame_size: int) -> None:
        self._blocks, self._size = blocks, frame_size
        self._block, self._at = memoryview(b""), 0

    def take(self, count: int) -> Iterator[memoryview]:
        left = count * self._size
        while left > 0:
            if self._at == len(self._block):
                self._block, self._at = memoryview(next(self._blocks)), 0
            piece = self._block[self._at : self._at + left]
            self._at += len(piece)
            left -= len(piece)
            yield piece


def send(connection: socket.socket, frames: Frames, pace: Pace, seconds: float, stop: Stop) -> Sent:
    """Send at a pace for ``seconds``, or until asked to stop."""
    started = time.monotonic()
    sent, late = 0, 0.0
    while not stop.is_asked:
        now = time.monotonic() - started
        due = pace.due(min(now, seconds))
        if due > sent:
            late = max(late, (due - sent) / pace.rate - TICK_SECONDS)
            for piece in frames.take(due - sent):
                connection.sendall(piece)
            sent = due
        if now >= seconds:
            break
        time.sleep(max(0.0, TICK_SECONDS - (time.monotonic() - started - now)))
    return Sent(sent, time.monotonic() - started, max(0.0, late) * 1000)


def main() -> None:
    """Read the command line, connect, send, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("stream", choices=("orders", "quotes"))
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("--rate", type=float, default=60_000, help="messages per second")
    parser.add_argument("--seconds", type=float, default=60, help="0: until SIGTERM or SIGINT")
    parser.add_argument(
        "--reject-share", type=float, default=0.005, help="share of orders for rejecting symbols"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--paced", action="store_true", help="read new rates from standard input, one a line"
    )
    options = parser.parse_args()
    stop = Stop()
    market = Market.of(OPENING.read_bytes(), options.reject_share, options.seed)
    is_orders = options.stream == "orders"
    frames = (
        Frames(market.order_blocks(), ORDER_FRAME.size)
        if is_orders
        else Frames(market.quote_blocks(), QUOTE_FRAME.size)
    )
    pace = Pace(options.rate)
    if options.paced:
        threading.Thread(target=pace.follow, args=(sys.stdin,), daemon=True).start()
    host, _, port = options.address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        report = send(connection, frames, pace, options.seconds or float("inf"), stop)
    print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    main()
