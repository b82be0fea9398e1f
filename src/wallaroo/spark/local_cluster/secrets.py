"""The secret that a cluster's daemons share with this user's drivers.

It is created with the cluster; drivers find it in a private file named by the master's address.

Where it runs: a terminal, a test; the driver reads.

Invariant: a secret is in files of mode 0600 and in the memory of processes of this user, never on a
command line.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import secrets
from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import PeerError
from wallaroo.spark.local_cluster.state import default_folder

SECRET_BYTES = 32
NO_FOLDER = (OSError, PeerError)  # nothing to read or write, or a user without a home
# For every connection between Spark's processes: without the secret there is no answer.
AUTHENTICATED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
}
SECRET = "spark.authenticate.secret"
_PAGES_FILTER = "org.apache.spark.ui.JWSFilter"


def new_secret() -> str:
    """Return a secret that no other cluster has."""
    return secrets.token_hex(SECRET_BYTES)


def settings_with(secret: str) -> dict[str, str]:
    """Return the settings of processes that authenticate each other by ``secret``.

    There are none for the empty one, which belongs to a cluster that an older version started.
    """
    return {**AUTHENTICATED, SECRET: secret} if secret else {}


def pages_with(secret: str) -> dict[str, str]:
    """Return the settings of daemons whose web pages require it, as they show output."""
    if not secret:
        return {}
    key = base64.urlsafe_b64encode(secret.encode()).decode()
    return {"spark.ui.filters": _PAGES_FILTER, f"spark.{_PAGES_FILTER}.param.secretKey": key}


def bearer(secret: str) -> dict[str, str]:
    """Return the headers of a request to such a page: a signed token (RFC 7515, HS256)."""
    if not secret:
        return {}
    signed = b".".join(map(_base64url, (b'{"alg":"HS256"}', b'{"sub":"wallaroo"}')))
    signature = _base64url(hmac.digest(secret.encode(), signed, "sha256"))
    return {"Authorization": f"Bearer {(signed + b'.' + signature).decode()}"}


def publish(url: str, secret: str) -> None:
    """Write the secret of the master at ``url`` for this user's drivers; raise PeerError."""
    try:
        file = _file_of(url)
        make_private(file.parent)
        write_whole(file, secret.encode(), is_durable=False, points="cluster")
    except NO_FOLDER as error:
        raise PeerError(
            f"the secret of {url} cannot be written for `wallaroo run`: {error}. Set "
            "XDG_STATE_HOME to a folder of yours."
        ) from error


def withdraw(url: str) -> None:
    """Delete the secret of a master that has ended."""
    with contextlib.suppress(*NO_FOLDER):
        _file_of(url).unlink(missing_ok=True)


def secret_of(url: str) -> str:
    """Return the secret of the master at ``url``; "" if `wallaroo cluster` has none there."""
    try:
        return _file_of(url).read_text()
    except NO_FOLDER:
        return ""


def _file_of(url: str) -> Path:
    address = url.removeprefix("spark://").replace("localhost:", "127.0.0.1:")
    return default_folder().with_name("masters") / address.replace("/", "_")


def _base64url(text: bytes) -> bytes:
    return base64.urlsafe_b64encode(text).rstrip(b"=")
