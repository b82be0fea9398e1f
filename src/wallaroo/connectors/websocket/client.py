"""WebSocket connections with our defaults, and their errors' meaning for runs."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidStatus,
    InvalidUpgrade,
    InvalidURI,
    NegotiationError,
    WebSocketException,
)
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from wallaroo.network.client_errors import ClientErrors, sentence_of
from wallaroo.network.tls_sockets import shared_by_threads
from wallaroo.network.urls import place_of

OPEN_S_MAX = 10.0
PING_S = 20.0  # so that no proxy closes the connection as idle
_LASTING = (InvalidURI, InvalidUpgrade, NegotiationError, ssl.SSLCertVerificationError)
_PASSING_STATUSES = (408, 425, 429)  # and 5xx
_CLIENT_LOG = logging.getLogger("wallaroo.websockets")
_CLIENT_LOG.setLevel(logging.CRITICAL)  # a run reports once what it waits for


@dataclass(frozen=True, slots=True)
class Peer:
    """The server to connect to, and the connection's options."""

    url: str = field(repr=False)  # its query may hold a key
    headers: Mapping[str, str] = field(repr=False)
    max_size: int
    tls: ssl.SSLContext | None
    open_s_max: float = OPEN_S_MAX

    @property
    def place(self) -> str:
        """Return the server's name for errors, without login and query."""
        return place_of(self.url)


def connected(peer: Peer) -> AbstractContextManager[Any]:
    """Return a connection as a context manager.  Raises the client's errors."""
    options: dict[str, Any] = {}
    if peer.tls is not None or peer.url.startswith("wss:"):
        options["ssl"] = shared_by_threads(peer.tls or ssl.create_default_context())
    try:
        connection: AbstractContextManager[Any] = connect(
            peer.url,
            additional_headers=dict(peer.headers),
            open_timeout=peer.open_s_max,
            close_timeout=1.0,
            ping_interval=PING_S,
            # answers are not read while the backlog is at its bound; `keep_alive` notices the rest
            ping_timeout=None,
            max_size=peer.max_size,
            proxy=None,
            logger=_CLIENT_LOG,
            **options,
        )
    except AssertionError as error:  # the library does not expect an answer before its request
        raise InvalidMessage("did not receive a valid HTTP response") from error
    return connection


def received(connection: Connection) -> bytes:
    """Return the next message, once there is one.  Raises the library's errors."""
    message = connection.recv()  # `decode=False` would accept a text that is not UTF-8
    return message.encode() if isinstance(message, str) else message


def _is_transient(error: Exception) -> bool:
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return status >= 500 or status in _PASSING_STATUSES
    return not isinstance(error, _LASTING)


def _sentence(error: Exception) -> str:
    if isinstance(error, ConnectionClosed) and error.rcvd is not None:
        reason = f": {error.rcvd.reason}" if error.rcvd.reason else ""
        return f"closed by the server, code {error.rcvd.code}{reason}"
    if isinstance(error, InvalidURI):  # its text begins with the url
        return f"the url is not valid: {error.msg}"
    return sentence_of(error)


ERRORS = ClientErrors((WebSocketException, OSError), _is_transient, _sentence)
