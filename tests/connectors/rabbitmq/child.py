"""A driver in small, to be killed: one batch, published to a queue."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.sinks.identities import history_to
from wallaroo.sinks import RabbitMQSinkConfig


def main(url: str, queue: str, staging: str, tokens: str) -> None:
    committer = RabbitMQSinkConfig(url, None, "out", queue).committer("s", Path(staging), True)
    committer.recover(history_to(0), json.loads(tokens))
    committer.close(180.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
