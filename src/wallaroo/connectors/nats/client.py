"""NATS connections with our defaults, and their errors' meaning for runs."""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import nats
from nats import errors
from nats.js.errors import BadRequestError, NotFoundError, ServiceUnavailableError

from wallaroo.connectors.nats.sink import NATSSinkConfig
from wallaroo.connectors.nats.source import NATSSourceConfig
from wallaroo.network.client_errors import ClientErrors, readable_address
from wallaroo.network.tls_sockets import client_context

TIMEOUT_S = 10.0
PING_S = 10  # a server that vanished silently is noticed after three of them
_LASTING = (
    errors.AuthorizationError,
    BadRequestError,
    errors.BadSubjectError,
    errors.InvalidUserCredentialsError,
    errors.MaxPayloadError,
    NotFoundError,  # no such stream
    errors.SecureConnRequiredError,
    errors.SecureConnWantedError,
    ssl.SSLCertVerificationError,
)
_SERVER = re.compile(r"(\[[^]\s]+\]|[^\s:/?#\[\]]+)(:[0-9]{1,5})?(?=[/?#]|$)")
_FORM = "nats://[user:password@]host:port, or tls://; a comma in a password is written as %2C"
_REFUSALS = ("authorization violation", "authentication", "permissions violation", "connect url")


@dataclass(frozen=True, slots=True)
class Server:
    """The servers and the login; ``url`` may be several, separated by commas."""

    url: str = field(repr=False)
    credentials: str = ""  # a file of the client's JWT and key
    tls: ssl.SSLContext | None = None

    @property
    def place(self) -> str:
        """Return the servers' name for errors, without passwords."""
        return f"NATS at {', '.join(address.place for address in addresses_of(self.url))}"


class Address(NamedTuple):
    """One server; ``login`` has the options of a connection that hold secrets."""

    place: str
    login: dict[str, str]


def addresses_of(url: str) -> list[Address]:
    """Return the addresses.  Raises ValueError, without a secret, if one cannot be read.

    >>> addresses_of("nats://me:p%2Cw@one:4222, two")
    [Address(place='nats://one:4222', login={'user': 'me', 'password': 'p,w'}), \
Address(place='nats://two', login={})]
    """
    parts = [part.strip() for part in url.split(",") if part.strip()]
    if not parts:
        raise ValueError("it is empty")
    addresses = []
    for number, part in enumerate(parts, 1):
        scheme, mark, rest = part.partition("://") if "://" in part else ("nats", "", part)
        login, at, place = rest.rpartition("@")
        server = _SERVER.match(place)
        is_rest_of_password = number > 1 and at and not mark
        if server is None or scheme not in ("nats", "tls") or is_rest_of_password:
            raise ValueError(f"part {number} is not {_FORM}")
        user, colon, password = login.partition(":")
        options = {"user": user, "password": password} if colon else {"token": user}
        decoded = {name: unquote(value) for name, value in options.items() if at}
        addresses.append(Address(f"{scheme}://{server[0]}", decoded))
    return addresses


def server_of(config: NATSSourceConfig[Any] | NATSSinkConfig, user: str) -> Server:
    """Return a source's or sink's servers; raise PeerError if they cannot be parsed."""
    with readable_address(user):
        addresses_of(config.url)
    context = client_context(config.tls) if config.tls is not None else None
    return Server(config.url, config.credentials, context)


async def connected(server: Server) -> Any:
    """Connect; the client does not reconnect automatically.  Raises one of its errors."""
    addresses = addresses_of(server.url)
    *others, last = random.sample(addresses, len(addresses))  # as the client does
    for address in others:
        try:
            return await _connected_to(address, server)
        except ERRORS.types as error:
            if not _is_transient(error):
                raise
    return await _connected_to(last, server)


async def _connected_to(address: Address, server: Server) -> Any:
    seen: list[Exception] = []

    async def note(error: Exception) -> None:
        seen.append(error)

    options: dict[str, Any] = {"tls": server.tls} if server.tls is not None else {}
    if server.credentials:
        options["user_credentials"] = server.credentials
    connecting = nats.connect(
        address.place,
        name="wallaroo",
        error_cb=note,
        allow_reconnect=False,
        max_reconnect_attempts=1,
        reconnect_time_wait=0,
        connect_timeout=int(TIMEOUT_S),
        ping_interval=PING_S,
        **options,
        **address.login,  # the client does not decode the login of a URL
    )
    try:
        return await asyncio.wait_for(connecting, 2 * TIMEOUT_S)
    except errors.NoServersError:
        raise (seen[-1] if seen else errors.NoServersError()) from None


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
    if not words and isinstance(error, TimeoutError):
        return "no answer"
    return (words[1:-1] if quoted else words) or type(error).__name__


ERRORS = ClientErrors((nats.errors.Error, OSError, asyncio.TimeoutError), _is_transient, _sentence)
