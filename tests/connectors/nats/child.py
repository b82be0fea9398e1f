"""A driver in small, to be killed: one batch, published to a subject."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.sinks.identities import history_to
from wallaroo.sinks import NATSSinkConfig


def main(url: str, subject: str, staging: str, tokens: str) -> None:
    committer = NATSSinkConfig(url, subject).committer("s", Path(staging), True)
    committer.recover(history_to(0), json.loads(tokens))
    committer.close(180.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
