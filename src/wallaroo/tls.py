"""TLS from PEM files, as a configuration names them.

Where it runs: everywhere; the files are read where a socket is opened.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TLS:
    """PEM files of a listening side: its ``certificate`` (with the chain) and ``key``; with ``ca``
    it takes only clients whose certificates one of these signed.

    The oldest version spoken is TLS 1.2, as Python's defaults have it.
    """

    certificate: str
    key: str
    ca: str = ""
