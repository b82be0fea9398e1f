"""Delivery of committed batches to an HTTP server.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is a request, and an answer
of 2xx accepts it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, ClassVar

import urllib3
from urllib3.exceptions import DecodeError, HTTPError, SSLError

from wallaroo.connectors.http.sink import SKIP, HTTPSinkConfig
from wallaroo.errors import PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.tls_sockets import client_context, is_cut_off
from wallaroo.sinks.queued import at_least_once
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import BROKEN_OFF, STALLED_S, CommitContext, DeliveryError

IDEMPOTENCY_KEY = "Idempotency-Key"
LOGGER = logging.getLogger("wallaroo.connectors.http")
TRANSIENT = (408, 425, 429)  # and 5xx: the same request may be accepted later
# Bytes that are read of an answer; a connection with more of it is not used again.
READ_MAX = 1 << 16  # for errors, which show a part of it
DRAINED_MAX = 1 << 20  # if the status is 2xx: answers to bulk requests are long
RETRY_AFTER_S_MAX = 3600.0
SHOWN_MAX = 200  # characters of a response body that errors show


class AnswerError(DeliveryError):
    """An answer other than success.

    ``retry_after_s`` is the delay that the server asks for.
    """

    def __init__(self, status: int, words: str, retry_after_s: float = 0.0):
        is_transient = status in TRANSIENT or status >= 500
        super().__init__(f"answer {status}{words and ': '}{words}", is_transient)
        self.retry_after_s = retry_after_s


class FinalAnswer(HTTPResponse):
    """An answer after informational ones (RFC 9110, 15.2).

    The library itself only skips 100.
    """

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]  # not public
        if 100 < status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS:
            status = HTTPStatus.CONTINUE
        return version, status, reason


class HTTPSession(at_least_once.SlicedSession):
    """A session whose requests share a connection."""

    def __init__(self, config: HTTPSinkConfig, progress: at_least_once.Progress, checkpoint: str):
        super().__init__(checkpoint, progress, config.batch)
        self._config = config
        self._headers = {**config.headers, "Content-Type": config.body_type}
        context = client_context(config.tls) if config.tls is not None else None
        self._pool = urllib3.PoolManager(
            num_pools=1, retries=False, timeout=config.timeout_s, ssl_context=context
        )
        self._connection: Any = None  # the last one
        self._is_broken_off = False
        pool: Any = self._pool.connection_from_url(config.url)
        pool.ConnectionCls = partial(self._noted, pool.ConnectionCls)

    def deliver(self, part: at_least_once.Slice) -> None:
        """Make one request; raise DeliveryError or urllib3's HTTPError if it is rejected.

        An output refused alone in its request is skipped, if so configured.
        """
        config = self._config
        headers = {**self._headers, IDEMPOTENCY_KEY: part.key}
        fault_point("http.request")
        answer = self._pool.request(
            config.method,
            config.url,
            body=self._body(part),
            headers=headers,
            redirect=False,
            preload_content=False,
        )
        is_accepted = 200 <= answer.status < 300
        body = _begin_of(answer, is_shown=not is_accepted)
        fault_point("http.answer")
        # the rest of an aborted response could look like another response
        if self._is_broken_off:
            raise DeliveryError(BROKEN_OFF, is_transient=True)
        if is_accepted:
            return
        shown = " ".join(body.decode("utf-8", "replace").split())[:SHOWN_MAX]
        error = AnswerError(answer.status, shown, _retry_after_s(answer.headers))
        if error.is_transient or config.on_refused != SKIP:
            raise error
        if len(part.outputs) > 1:
            LOGGER.info("%s refused %s: sent one by one: %s", config.place, part.key, error)
            raise at_least_once.RefusedSliceError
        LOGGER.warning("%s refused %s, which is skipped: %s", config.place, part.key, error)

    def _noted(self, connect: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Open a connection, for ``cancel`` to find."""
        self._connection = connect(*args, **options)
        self._connection.response_class = FinalAnswer
        return self._connection

    def cancel(self) -> None:
        """Close the connection during a request: each part of the answer has its own timeout."""
        self._is_broken_off = True
        own = getattr(self._connection, "sock", None)
        if own is not None:
            with contextlib.suppress(OSError):
                # a TLS socket's own method would reset its state while the request still uses it
                socket.socket.shutdown(own, socket.SHUT_RDWR)

    def _body(self, part: at_least_once.Slice) -> bytes:
        if self._config.batch == 1:
            return part.outputs[0]
        return b"".join(output.removesuffix(b"\n") + b"\n" for output in part.outputs)

    def close(self) -> None:
        self._pool.clear()


def _begin_of(answer: urllib3.BaseHTTPResponse, *, is_shown: bool) -> bytes:
    """Read an answer's body; of a large one only its beginning, and close the connection.

    It is decoded, if possible, only to be shown.
    """
    body = b""
    with contextlib.suppress(DecodeError):
        body = answer.read(READ_MAX if is_shown else DRAINED_MAX, decode_content=is_shown)
        answer.read(1, decode_content=is_shown)  # raises if the answer is incomplete
    answer.close()  # no effect on a connection whose answer has been read
    answer.release_conn()
    return body


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds until Retry-After, at most RETRY_AFTER_S_MAX; 0 if it cannot be read.

    It is a number, or a date, which is compared with the answer's own.

    >>> _retry_after_s({"Retry-After": "35"}), _retry_after_s({"Retry-After": "soon"})
    (35.0, 0.0)
    >>> now = "Mon, 30 Nov 2026 10:00:00 GMT"
    >>> _retry_after_s({"Retry-After": now.replace("00 GMT", "05 GMT"), "Date": now})
    5.0
    """
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdigit():
        return min(RETRY_AFTER_S_MAX, float(value))
    try:
        until = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers["Date"]) if "Date" in headers else datetime.now(UTC)
        return max(0.0, min(RETRY_AFTER_S_MAX, float(math.ceil((until - now).total_seconds()))))
    except (ValueError, TypeError):  # not a date, or one of them is without a zone
        return 0.0


class HTTPSystem(at_least_once.SlicedSystem[HTTPSinkConfig]):
    """A URL and its retries."""

    session = HTTPSession
    errors: ClassVar[tuple[type[Exception], ...]] = (HTTPError, DeliveryError)

    def __init__(self, config: HTTPSinkConfig, context: CommitContext):
        """Raise PeerError for a TLS file that cannot be used."""
        super().__init__(config, context)
        # until the server is connected to, is sent to, and answers; more for what trickles
        self.stalled_s = 3 * config.timeout_s + STALLED_S
        if config.tls is not None:
            client_context(config.tls)

    def waiting_for(self, error: Exception) -> str:
        if not _is_transient(error):
            return ""
        pause_s = self.pause_s(error)
        return self.retry_text(self.target, _sentence(error), self._config.retries, pause_s)

    def pause_s(self, error: Exception) -> float:
        wanted = error.retry_after_s if isinstance(error, AnswerError) else 0.0
        return max(wanted, self._progress.pause_s(self._config.backoff_s))

    def permanent_error(self, error: Exception, batch: PendingBatch | None) -> WallarooError:
        which = f"output of batch {batch.batch}" if batch else "output"
        times = self._progress.failures
        often = f" {times} times in a row, the last time with" if times > 1 else ":"
        ways = "Correct the URL, the headers or the server"
        if isinstance(error, DeliveryError):
            ways += ", or write on_refused='skip' to continue without what is refused"
        elif isinstance(error, SSLError):
            ways = "Correct the URL, tls= or the server's certificate"
        return PeerError(
            f"{self.target} did not accept {which} of sink '{self._context.sink}'{often} "
            f"{_sentence(error)}. Nothing is lost: committed output waits in "
            f"{self._context.staging}. {ways}, then run again."
        )


def _is_transient(error: Exception) -> bool:
    if isinstance(error, DeliveryError):
        return error.is_transient
    cause = error.args[0] if isinstance(error, SSLError) and error.args else None
    is_cut = isinstance(cause, ssl.SSLError) and is_cut_off(cause)  # the server may be restarting
    return is_cut or not isinstance(error, SSLError)


def _sentence(error: Exception) -> str:
    """Return an error on one line, without the names of the client's objects."""
    while error.args and isinstance(error.args[-1], Exception):
        error = error.args[-1]
    text = " ".join(str(error).split())
    is_own = isinstance(error, DeliveryError)
    return text if is_own else re.sub(r"^HTTPS?Connection(Pool)?\(.*?\): ", "", text)
