"""Checks of addresses: accepting connections, and loopback.

Where it runs: driver, at the start of a run; replica; ingress hosts.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterable

from wallaroo.errors import PipelineError, Problem

PORT_MAX = 65_535


def parse_address(text: str) -> tuple[str, int] | None:
    """Parse ``HOST:PORT``; return None for other text.

    >>> parse_address("[::1]:7002"), parse_address("spark"), parse_address("10.0.0.1:99999")
    (('::1', 7002), None, None)
    """
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        return None
    return host.strip("[]"), int(port)


def why_unreachable(addresses: Iterable[str], within_s: float) -> str:
    """Return why no address ``host:port`` accepts a connection in time, or ""."""
    causes = []
    for address in addresses:
        cause = _cause(address, within_s)
        if not cause:
            return ""
        causes.append(f"{address}: {cause}")
    return "; ".join(causes)


def is_loopback(host: str) -> bool:
    """Return whether only this host reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_encrypted(command: str, host: str, is_encrypted: bool, what: str) -> None:
    """Raise PipelineError, which states ``what``, for an open connection over a network."""
    if not is_encrypted and not is_loopback(host):
        fix = "Give --tls-cert and --tls-key: a certificate that signs itself will do."
        raise PipelineError(Problem(command, "", what, fix))


def _cause(address: str, within_s: float) -> str:
    target = parse_address(address)
    if target is None:  # the resolver takes a port beyond the last one modulo 65,536
        return f"it is not HOST:PORT with a port up to {PORT_MAX}"
    causes: list[str] = []

    def connect() -> None:
        try:
            socket.create_connection(target, within_s).close()
        except OSError as error:
            causes.append(error.strerror or str(error))
        except ValueError as error:  # letters of the name
            causes.append(str(error))
        else:
            causes.append("")

    # resolving a name has no timeout of its own if no server answers, and may take minutes
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(within_s)
    return causes[0] if causes else f"no answer within {within_s:g} s"
