"""Check of a certificate as another host will check it.

Where it runs: driver.
"""

from __future__ import annotations

import ssl

from wallaroo.errors import PeerError
from wallaroo.network.tls import TLS
from wallaroo.network.tls_sockets import context_of, pem_of, pinned_context


def require_valid(tls: TLS) -> None:
    """Raise PeerError unless a client that trusts this certificate accepts it now."""
    pem = pem_of(tls)
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    server = context_of(pem).wrap_bio(to_server, to_client, server_side=True)
    client = pinned_context(pem.certificate).wrap_bio(to_client, to_server)
    try:
        is_done = False
        while not is_done:
            is_done = _stepped(client)
            _stepped(server)
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason or str(error)
        raise PeerError(
            f"TLS: {tls.certificate} is not accepted by other hosts: {why}. Give a certificate "
            f"that is valid now."
        ) from error


def _stepped(side: ssl.SSLObject) -> bool:
    """Do the next step of a handshake; return whether it is done."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
