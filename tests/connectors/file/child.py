"""A driver that begins, to be killed: it recovers a file sink, or rolls it back."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.connectors.file.sink import FileSinkConfig


def main(arguments: str) -> None:
    path, staging, verb, number, tokens, is_overwriting = json.loads(arguments)
    committer = FileSinkConfig(path, overwrite=is_overwriting).committer("s", Path(staging), True)
    if verb == "recover":
        committer.recover(history_to(number), tokens)
    else:
        committer.rollback(commit_of(number), tokens)
