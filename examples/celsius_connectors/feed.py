"""A source program: sends files of framed messages, each file as a stream.

``python feed.py HOST:PORT FILE...``
"""

from __future__ import annotations

import sys

from wallaroo.experimental import FramedFileReader, MultiSourceConnector

COOKIE = "Dragons-Love-Tacos"


def main(address: str, *files: str) -> int:
    """Send all files; return when everything is acknowledged."""
    host, _, port = address.rpartition(":")
    client = MultiSourceConnector("0.0.1", COOKIE, "celsius feed", "1", host, port)
    client.connect()
    for file in files:
        client.add_source(FramedFileReader(file))
    error = client.join()
    if error is not None:
        print(f"feed: {error}", file=sys.stderr)
        return 1
    print(f"sent {', '.join(files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
