"""Queries to a running application over HTTP.

Where it runs: a terminal, the verifier.
"""

from __future__ import annotations

import http
import http.client
import json
import os
import ssl
from dataclasses import dataclass

from wallaroo.errors import PeerError
from wallaroo.monitoring.status_api.access import TOKEN_VARIABLE
from wallaroo.monitoring.status_api.queries import TRUNCATED
from wallaroo.network.tls_sockets import Address

# a large state takes a while to read, and may have to wait for another reading
ANSWER_S_MAX = 150.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an application: JSON as received."""

    body: str
    is_truncated: bool


def ask(
    address: Address,
    path: str,
    timeout_s: float = ANSWER_S_MAX,
    token: str = "",
    context: ssl.SSLContext | None = None,
) -> Answer:
    """Query a running application, with a ``context`` over TLS.

    Raises PeerError if the address is not an application's, or it has no answer.  Without a
    ``token`` that of the environment is sent.
    """
    token = token or os.environ.get(TOKEN_VARIABLE, "")
    host, port = address
    connection = _connection(address, timeout_s, context)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        body = reply.read().decode(errors="replace")
    except TimeoutError as error:
        raise PeerError(
            f"the application at {host}:{port} does not answer within {timeout_s:g} s. It may hang."
        ) from error
    except ssl.SSLError as error:
        raise PeerError(_untrusted(address, error)) from error
    except http.client.RemoteDisconnected as error:
        raise PeerError(
            f"{host}:{port} hung up without an answer. It is ending, or answers https:// only: ask "
            f"https://{host}:{port}."
        ) from error
    except OSError as error:
        raise PeerError(
            f"no application answers at {host}:{port}: {error.strerror or error}. It has ended, "
            f"or listens elsewhere."
        ) from error
    except (http.client.HTTPException, ValueError) as error:
        raise PeerError(_other(address)) from error
    finally:
        connection.close()
    try:
        content = json.loads(body)
    except ValueError as error:
        raise PeerError(_other(address)) from error
    if reply.status != http.HTTPStatus.OK:
        said = content.get("error") if isinstance(content, dict) else None
        raise PeerError(f"the application at {host}:{port} cannot answer: {said or reply.reason}")
    return Answer(body, reply.headers.get(TRUNCATED) == "true")


def _connection(
    address: Address, timeout_s: float, context: ssl.SSLContext | None
) -> http.client.HTTPConnection:
    if context is None:
        return http.client.HTTPConnection(*address, timeout=timeout_s)
    return http.client.HTTPSConnection(*address, timeout=timeout_s, context=context)


def _untrusted(address: Address, error: ssl.SSLError) -> str:
    where = f"{address[0]}:{address[1]}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {where} is not trusted: {error.verify_message}. Name the PEM file "
            f"of its issuer in SSL_CERT_FILE, or ask by its checkpoint folder."
        )
    return f"{where} does not answer as TLS does ({error.reason}). Ask without https://."


def _other(address: Address) -> str:
    return (
        f"what answers at {address[0]}:{address[1]} is not an application of wallaroo. Correct the "
        f"address."
    )
