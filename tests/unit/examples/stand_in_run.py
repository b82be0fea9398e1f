"""In place of `wallaroo run market_spread.py` in the demo's test: the same ports, frames and
summary, in one small process.

`--fault lose|repeat` makes it lose or repeat every tenth rejection, so that a test can see the demo
notice.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import socketserver
import struct
import threading
from pathlib import Path

ORDER, QUOTE = struct.Struct(">BBI6s4sdd21x"), struct.Struct(">B4s21xdd")
REJECTION = struct.Struct(">IBI6s4sddddQ")
LATENCY = {
    "pipeline": "Orders",
    "count": 1,
    "p50_ms": 1.0,
    "p95_ms": 2.0,
    "p99_ms": 3.0,
    "p999_ms": 4.0,
    "max_ms": 5.0,
}


class Exchange:
    """All symbols' markets, and the way out."""

    def __init__(self, out: socket.socket, fault: str) -> None:
        self.out, self.fault = out, fault
        self.lock = threading.Lock()
        self.quotes: dict[bytes, tuple[float, float]] = {}
        self.events_in = self.rejections = 0

    def take(self, payload: bytes) -> None:
        with self.lock:
            self.events_in += 1
            if payload[0] == 2:
                _, symbol, bid, offer = QUOTE.unpack(payload)
                self.quotes[symbol] = bid, offer
                return
            _, side, account, order_id, symbol, quantity, price = ORDER.unpack(payload)
            bid, offer = self.quotes.get(symbol, (0.0, 0.0))
            if bid == 0.0 or offer - bid >= 0.05 or (offer - bid) / ((bid + offer) / 2) >= 0.05:
                self.rejections += 1
                times = {"": 1, "lose": 0, "repeat": 2}[
                    self.fault if self.rejections % 10 == 0 else ""
                ]
                self.out.sendall(
                    times
                    * REJECTION.pack(
                        55, side, account, order_id, symbol, quantity, price, bid, offer, 0
                    )
                )


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def handler_of(exchange: Exchange) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(header := self.rfile.read(4)) == 4:
                exchange.take(self.rfile.read(int.from_bytes(header, "big")))

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--in", "--out", "--summary"):
        parser.add_argument(name, required=True, dest=name.strip("-") + "_")
    parser.add_argument("--fault", default="")
    options, _ = parser.parse_known_args()
    host, _, port = options.out_.rpartition(":")
    exchange = Exchange(socket.create_connection((host, int(port))), options.fault)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    for source in options.in_.split(","):
        server = Server(("127.0.0.1", int(source.rpartition(":")[2])), handler_of(exchange))
        threading.Thread(target=server.serve_forever, daemon=True).start()
    stopped.wait()
    Path(options.summary_).write_text(
        json.dumps({"events_in": exchange.events_in, "latency": [LATENCY]})
    )


if __name__ == "__main__":
    main()
