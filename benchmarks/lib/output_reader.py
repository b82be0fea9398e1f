"""A receiver that reads an application's output and drops it.

    python -m benchmarks.lib.output_reader

Prints the port it listens on; ends at SIGTERM.

Where it runs: a process of its own, so that the driver's process does not pay for it.
"""

from __future__ import annotations

import signal
import socketserver
import sys
import threading

READ_BYTES = 1 << 18


class Drain(socketserver.ThreadingTCPServer):
    """Any number of connections."""

    daemon_threads = True


class _Reading(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        buffer = bytearray(READ_BYTES)
        while self.request.recv_into(buffer):
            pass


def main() -> int:
    """Serve until SIGTERM."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    with Drain(("127.0.0.1", 0), _Reading) as drain:
        threading.Thread(target=drain.serve_forever, daemon=True).start()
        print(drain.server_address[1], flush=True)
        is_over.wait()
        drain.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
