"""``python -m wallaroo.ingress CONFIG.json``: the process of all TCP sources.

Where it runs: ingress.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wallaroo.errors import CheckpointError, WallarooError
from wallaroo.ingress.child import EXIT_PEER, Parent, fail, say
from wallaroo.ingress.config import read_config
from wallaroo.ingress.server import Ingress


def main(path: str) -> int:
    """Listen, say so, and read until told to stop; return the exit code."""
    parent = Parent()
    try:
        ingress = Ingress(read_config(Path(path)), parent)
        addresses, acked = ingress.listen()
        say("ACKS", acked)
        say("READY", addresses)
        ingress.run()
    except WallarooError as problem:
        fail("checkpoint" if isinstance(problem, CheckpointError) else "peer", str(problem))
        return EXIT_PEER
    except OSError as problem:
        fail("peer", f"the ingress failed: {problem}")
        return EXIT_PEER
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
