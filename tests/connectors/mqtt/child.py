"""A driver in small, to be killed: one batch, published to a topic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.sinks.identities import history_to
from wallaroo.sinks import MQTTSinkConfig


def main(port: str, staging: str, tokens: str) -> None:
    config = MQTTSinkConfig("127.0.0.1", "out", port=int(port))
    committer = config.committer("s", Path(staging), True)
    committer.recover(history_to(0), json.loads(tokens))
    committer.close(180.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
