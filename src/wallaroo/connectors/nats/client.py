"""NATS connections with our defaults, and their errors' meaning for runs."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Any

import nats
from nats.errors import (
    AuthorizationError,
    BadSubjectError,
    InvalidUserCredentialsError,
    MaxPayloadError,
    NoServersError,
    SecureConnRequiredError,
    SecureConnWantedError,
)
from nats.js.errors import BadRequestError, NotFoundError, ServiceUnavailableError

from wallaroo.connectors.nats.sink import NATSSinkConfig
from wallaroo.connectors.nats.source import NATSSourceConfig
from wallaroo.network.client_errors import ClientErrors, readable_address
from wallaroo.network.tls_sockets import client_context

TIMEOUT_S = 10.0
PING_S = 10  # a server that vanished silently is noticed after three of them
_LASTING = (
    AuthorizationError,
    BadRequestError,
    BadSubjectError,
    InvalidUserCredentialsError,
    MaxPayloadError,
    NotFoundError,  # no such stream
    SecureConnRequiredError,
    SecureConnWantedError,
    ssl.SSLCertVerificationError,
)
_REFUSALS = ("authorization violation", "authentication", "permissions violation")


@dataclass(frozen=True, slots=True)
class Server:
    """The servers and the login; ``url`` may be several, separated by commas."""

    url: str = field(repr=False)
    credentials: str = ""  # a file of the client's JWT and key
    tls: ssl.SSLContext | None = None

    @property
    def place(self) -> str:
        """Return the servers' name for errors, without passwords."""
        return f"NATS at {', '.join(map(_without_login, addresses_of(self.url)))}"


def addresses_of(url: str) -> list[str]:
    """Return the addresses.  Raises ValueError if one cannot be read.

    >>> addresses_of("nats://one:4222, two")
    ['nats://one:4222', 'nats://two']
    """
    parts = [part.strip() for part in url.split(",") if part.strip()]
    for part in parts:
        scheme, is_there, rest = part.partition("://")
        if (is_there and scheme not in ("nats", "tls")) or not (rest or scheme):
            raise ValueError(f"'{_without_login(part)}' is not a nats:// or tls:// address")
    if not parts:
        raise ValueError("it is empty")
    return [part if "://" in part else f"nats://{part}" for part in parts]


def _without_login(address: str) -> str:
    scheme, between, rest = address.rpartition("://")
    return f"{scheme}{between}{rest.rpartition('@')[2]}"


def server_of(config: NATSSourceConfig[Any] | NATSSinkConfig, user: str) -> Server:
    """Return a source's or sink's servers; raise PeerError if they cannot be parsed."""
    with readable_address(user):
        addresses_of(config.url)
    context = client_context(config.tls) if config.tls is not None else None
    return Server(config.url, config.credentials, context)


async def connected(server: Server) -> Any:
    """Connect; the client does not connect again by itself.  Raises one of its errors."""
    seen: list[Exception] = []

    async def note(error: Exception) -> None:
        seen.append(error)

    options: dict[str, Any] = {"tls": server.tls} if server.tls is not None else {}
    if server.credentials:
        options["user_credentials"] = server.credentials
    connecting = nats.connect(
        addresses_of(server.url),
        name="wallaroo",
        error_cb=note,
        allow_reconnect=False,
        max_reconnect_attempts=1,
        reconnect_time_wait=0,
        connect_timeout=int(TIMEOUT_S),
        ping_interval=PING_S,
        **options,
    )
    try:
        return await asyncio.wait_for(connecting, 2 * TIMEOUT_S)
    except NoServersError:
        raise (seen[-1] if seen else NoServersError()) from None


def _is_transient(error: Exception) -> bool:
    if isinstance(error, ServiceUnavailableError):  # a cluster may be choosing a leader
        return True
    words = str(error).lower()
    return not isinstance(error, _LASTING) and not any(word in words for word in _REFUSALS)


def _sentence(error: Exception) -> str:
    """Return an error on one line, in the server's words if there are any."""
    if isinstance(error, ServiceUnavailableError) and not error.description:
        return "JetStream is not available"
    said = getattr(error, "description", "") or getattr(error, "strerror", "") or str(error)
    words = " ".join(str(said).split()).removeprefix("nats: ")
    quoted = words.startswith("'") and words.endswith("'")  # by the server
    return (words[1:-1] if quoted else words) or type(error).__name__


ERRORS = ClientErrors((nats.errors.Error, OSError, asyncio.TimeoutError), _is_transient, _sentence)
