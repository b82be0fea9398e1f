"""Answers of a run that is measured: its status, its other pages, whether a port listens.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.request
from http.client import HTTPException
from typing import Any

from benchmarks.lib.loads import HOST

ANSWER_S_MAX = 5.0


def listens(port: int) -> bool:
    """Return whether a program on this machine accepts connections on a port."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
        return True
    return False


def page_of(port: int, name: str) -> str:
    """Return a page of a run's status address; "" if it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/{name}", timeout=ANSWER_S_MAX) as answer:
            return str(answer.read().decode())
    except (OSError, HTTPException):  # it may be killed in the middle of its answer
        return ""


def status_of(port: int) -> dict[str, Any]:
    """Return a run's status; empty if it does not answer."""
    return dict(json.loads(page_of(port, "status") or "{}"))
