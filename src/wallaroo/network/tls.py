"""TLS configuration by PEM files.

Where it runs: everywhere; the files are read by the process that opens a socket.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TLS:
    """PEM files of one side of a connection.

    A listening side has its ``certificate`` (with the chain) and ``key``; with ``ca`` it accepts
    only clients whose certificates one of these signed.  A sink has ``ca``, which signed the
    receiver's certificate, and trusts no others (without it: those that this system trusts);
    ``certificate`` and ``key`` if the receiver asks for them.

    The oldest version spoken is TLS 1.2, as Python's defaults have it.
    """

    certificate: str = ""
    key: str = ""
    ca: str = ""


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate (with its chain) and its key, as portable texts."""

    certificate: str
    key: str = field(repr=False)
