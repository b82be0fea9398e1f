"""Base of sources that serve HTTP clients: path, token, bound.

Where it runs: the configuration is pickled; the server is a feeder process.
"""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import ClassVar

from wallaroo.network.tls import TLS
from wallaroo.sources.interface import Event, SourceConfig

MAX_SIZE = 1 << 20


class ServerSourceConfig(SourceConfig[Event]):
    """A source on a port, for clients with its path and token."""

    label_form: ClassVar[str] = "{0.kind} {0.host}:{0.port}{0.path}"
    host: str
    port: int
    path: str
    token: str
    max_size: int
    tls: TLS | None

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise self._wrong(f"path={self.path!r} does not begin with /.", "Write '/events', say.")
        if self.max_size < 1:
            raise self._wrong(f"max_size={self.max_size!r} is not a size.", "Give bytes.")
        if (
            not (self.token.isascii() and self.token.isprintable())
            or self.token.strip() != self.token
        ):
            fix = "Use ASCII characters, and no newline or spaces at its ends (strip() it)."
            raise self._wrong("The token cannot be sent in a header.", fix)

    def refusal(self, path: str, authorization: str | None) -> HTTPStatus | None:
        """Return the status that refuses a request for its path or token, if any."""
        if path.partition("?")[0] != self.path:
            return HTTPStatus.NOT_FOUND
        scheme, _, token = (authorization or "").partition(" ")
        is_same = hmac.compare_digest(token.encode("latin-1", "replace"), self.token.encode())
        if self.token and not (is_same and scheme.lower() == "bearer"):
            return HTTPStatus.UNAUTHORIZED
        return None
