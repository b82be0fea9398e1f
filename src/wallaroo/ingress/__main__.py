"""``python -m wallaroo.ingress``: the process of all TCP sources."""

from __future__ import annotations

import sys

from wallaroo.ingress.config import IngressConfig
from wallaroo.ingress.server import Ingress
from wallaroo.processes.child import Parent, configuration, end_of, say


def main() -> int:
    """Listen, report it, and read until a stop is requested; return the exit code."""
    parent = Parent.of_process()

    def work() -> None:
        ingress = Ingress(configuration(IngressConfig), parent)
        addresses, acked = ingress.listen()
        say("ACKS", acked)
        say("READY", addresses)
        ingress.run()

    return end_of("ingress", work)


if __name__ == "__main__":
    sys.exit(main())
