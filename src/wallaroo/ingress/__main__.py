"""``python -m wallaroo.ingress CONFIG.json``: the process of all TCP sources.

Where it runs: ingress.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wallaroo.ingress.config import read_config
from wallaroo.ingress.server import Ingress
from wallaroo.processes.child import Parent, end_of, say


def main(path: str) -> int:
    """Listen, report it, and read until a stop is requested; return the exit code."""
    parent = Parent.of_process()

    def work() -> None:
        ingress = Ingress(read_config(Path(path)), parent)
        addresses, acked = ingress.listen()
        say("ACKS", acked)
        say("READY", addresses)
        ingress.run()

    return end_of("ingress", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
