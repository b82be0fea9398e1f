"""A driver in small, to be killed: one batch, sent to a WebSocket server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.sinks.identities import history_to
from wallaroo.sinks import WebSocketSinkConfig


def main(url: str, staging: str, tokens: str) -> None:
    committer = WebSocketSinkConfig(url).committer("s", Path(staging), True)
    committer.recover(history_to(0), json.loads(tokens))
    committer.close(180.0)
