"""Delivery of committed batches to an HTTP server.

The invariants are those of ``sinks/queued/at_least_once.py``: a slice is a request, and an answer
of 2xx accepts it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, ClassVar

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from wallaroo.connectors.http.sink import SKIP, HTTPSinkConfig
from wallaroo.errors import PeerError, WallarooError
from wallaroo.instrumentation.faults import fault_point
from wallaroo.network.tls_sockets import client_context
from wallaroo.sinks.queued.at_least_once import (
    BACKOFF_S_MAX,
    Progress,
    RefusedSliceError,
    Slice,
    SlicedSession,
    SlicedSystem,
)
from wallaroo.sinks.queued.pending import PendingBatch
from wallaroo.sinks.queued.system import BROKEN_OFF, STALLED_S, CommitContext, DeliveryError

IDEMPOTENCY_KEY = "Idempotency-Key"
LOGGER = logging.getLogger("wallaroo.connectors.http")
TRANSIENT = (408, 425, 429)  # and 5xx: the same request may be accepted later
SHOWN_MAX = 200  # characters of a response body that errors show


class AnswerError(DeliveryError):
    """An answer other than success.  ``retry_after_s`` is the delay that the server asks for."""

    def __init__(self, status: int, words: str, retry_after_s: float = 0.0):
        is_transient = status in TRANSIENT or status >= 500
        super().__init__(f"answer {status}{words and ': '}{words}", is_transient)
        self.retry_after_s = retry_after_s


class FinalAnswer(HTTPResponse):
    """An answer after informational ones (RFC 9110, 15.2): the library passes over 100 alone."""

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]  # not public
        if 100 < status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS:
            status = HTTPStatus.CONTINUE
        return version, status, reason


class HTTPSession(SlicedSession):
    """A session whose requests share a connection."""

    def __init__(self, config: HTTPSinkConfig, progress: Progress, checkpoint: str):
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

    def deliver(self, part: Slice) -> None:
        """Make one request; raise DeliveryError or urllib3's HTTPError if it is rejected.

        An output that is to be skipped when refused is, alone in its request.
        """
        config = self._config
        headers = {**self._headers, IDEMPOTENCY_KEY: part.key}
        fault_point("http.request")
        answer = self._pool.request(
            config.method, config.url, body=self._body(part), headers=headers, redirect=False
        )
        fault_point("http.answer")
        # the rest of a broken-off response could look like another response
        if self._is_broken_off:
            raise DeliveryError(BROKEN_OFF, is_transient=True)
        if 200 <= answer.status < 300:
            return
        error = AnswerError(answer.status, _shown(answer.data), _seconds(answer.headers))
        if error.is_transient or config.on_refused != SKIP:
            raise error
        if len(part.outputs) > 1:
            LOGGER.info("%s refused %s: sent one by one: %s", config.place, part.key, error)
            raise RefusedSliceError
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

    def _body(self, part: Slice) -> bytes:
        if self._config.batch == 1:
            return part.outputs[0]
        return b"".join(output.removesuffix(b"\n") + b"\n" for output in part.outputs)

    def close(self) -> None:
        self._pool.clear()


def _shown(body: bytes) -> str:
    return " ".join(body.decode("utf-8", "replace").split())[:SHOWN_MAX]


def _seconds(headers: urllib3.HTTPHeaderDict) -> float:
    """Return the seconds in Retry-After, at most BACKOFF_S_MAX; 0 if it is not a number."""
    given = headers.get("Retry-After", "")
    return min(BACKOFF_S_MAX, float(given)) if given.isascii() and given.isdigit() else 0.0


class HTTPSystem(SlicedSystem[HTTPSinkConfig]):
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
        is_transient = not isinstance(error, SSLError)
        if isinstance(error, DeliveryError):
            is_transient = error.is_transient
        if not is_transient:
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
        return PeerError(
            f"{self.target} did not accept {which} of sink '{self._context.sink}'{often} "
            f"{_sentence(error)}. Nothing is lost: committed output waits in "
            f"{self._context.staging}. Correct the URL, the headers or the server, or write "
            f"on_refused='skip' to continue without what is refused, then run again."
        )


def _sentence(error: Exception) -> str:
    """Return an error on one line, without the name of the client's object."""
    text = " ".join(str(error).split())
    is_own = isinstance(error, DeliveryError)
    return text if is_own else re.sub(r"^HTTPS?Connection(Pool)?\(.*?\): ", "", text)
