"""Commands that serve others until they are stopped.

Where it runs: a terminal or service.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time


def add_certificate(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options for the certificate that encrypts ``what``."""
    parser.add_argument(
        "--tls-cert",
        metavar="FILE",
        help=f"PEM certificate to encrypt {what}; required unless the address is loopback",
    )
    parser.add_argument("--tls-key", metavar="FILE", help="the key of --tls-cert, PEM")


def stop_request() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set from now on."""
    is_stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: is_stopping.set())
    return is_stopping


def report(line: str) -> None:
    """Print a line with the local date and time."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", flush=True)
