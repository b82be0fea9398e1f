"""Access to the status server: its valid names, and the token.

Where it runs: driver; a terminal reads the variable's name.  Pure, but for the creation of tokens.

* A server on a loopback address answers only requests that call it by a loopback name, so that a
  web page that resolves its own name here (DNS rebinding) can read nothing.
* Every server has a token; one is created if none was configured.  It is sent as ``Authorization:
  Bearer``, or, for browsers, once as ``?token=`` and then as a cookie.  Tokens are compared in
  constant time.
* On a loopback address, unless a token was configured, figures need none; a path that shows keys,
  state or events does, as other users of the machine can reach the address.
* ``/healthz`` and ``/readyz`` are open: they report a state only, and probes have no token.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from wallaroo.errors import PeerError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ALWAYS_ANSWERED = frozenset({"/healthz", "/readyz"})
TOKEN_VARIABLE = "WALLAROO_STATUS_TOKEN"
TOKEN_BYTES = 24
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]*")


class Admission(Enum):
    """The decision about a request."""

    ALLOWED = "allowed"
    BAD_HOST = "the Host header cannot be read; call the server by HOST:PORT"
    WRONG_NAME = "ask by the name localhost or the address 127.0.0.1"
    NO_TOKEN = (
        "the run's token is needed: send it as 'Authorization: Bearer TOKEN', or open "
        f"/?token=TOKEN in a browser. It is what {TOKEN_VARIABLE} was when the application "
        "started, else in run.json in its checkpoint; `wallaroo status --link` prints the "
        "dashboard's address with it"
    )


@dataclass(frozen=True, slots=True)
class Access:
    """The rule of one server."""

    is_loopback: bool
    token: str
    cookie: str  # its name
    shows_figures: bool  # without the token

    def judge(
        self, path: str, token_given: str, headers: Mapping[str, str], *, is_figures: bool = False
    ) -> Admission:
        """Decide about a request for ``path``, which shows figures only, or more.

        ``token_given`` is the token in its query.
        """
        try:
            called = urlsplit(f"//{headers.get('Host', 'localhost')}")
            name = called.hostname
            _ = called.port
        except ValueError:
            return Admission.BAD_HOST
        if self.is_loopback and name not in LOOPBACK:
            return Admission.WRONG_NAME
        if path in ALWAYS_ANSWERED or (is_figures and self.shows_figures):
            return Admission.ALLOWED
        given = (token_given, _bearer(headers), _cookie(headers, self.cookie))
        return Admission.ALLOWED if any(map(self.is_token, given)) else Admission.NO_TOKEN

    def is_token(self, given: str) -> bool:
        """Return whether the token is correct; equally fast for all wrong ones of its length."""
        return bool(self.token) and hmac.compare_digest(
            given.encode(errors="replace"), self.token.encode()
        )


def access_for(host: str, port: int, token: str) -> Access:
    """Return the rule of a server there.  Raises PeerError if no cookie can hold the token."""
    if not _TOKEN.fullmatch(token):
        raise PeerError(
            "the status server's token has characters that cannot travel in a cookie. Use letters, "
            "digits and -._~+/= only."
        )
    is_loopback = host in LOOPBACK
    return Access(
        is_loopback,
        token or secrets.token_urlsafe(TOKEN_BYTES),
        f"wallaroo-{port}",
        shows_figures=is_loopback and not token,
    )


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(headers: Mapping[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("Cookie", "")).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
