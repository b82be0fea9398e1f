"""An HTTP server as the system of a queued committer.

Where it runs: driver.  It imports urllib3, which is optional.

The invariants are those of ``sinks/slices.py``: a slice is a request, and an answer of 2xx accepts
it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import urllib3
from urllib3.exceptions import HTTPError, SSLError

from wallaroo.errors import PeerError, WallarooError
from wallaroo.faults import fault_point
from wallaroo.sinks.pending import PendingBatch
from wallaroo.sinks.queued_committer import QueuedCommitter
from wallaroo.sinks.slices import BACKOFF_S_MAX, Progress, Slice, SlicedSession
from wallaroo.sinks.system import ENDLESS_S, DeliveryError, Session, System
from wallaroo.tls import TLS
from wallaroo.tls_sockets import client_context

IDEMPOTENCY_KEY = "Idempotency-Key"
LOGGER = logging.getLogger("wallaroo.sinks.http")
TRANSIENT = (408, 425, 429)  # and 5xx: the same request may be accepted later
SHOWN_MAX = 200  # characters of an answer's body, in errors


@dataclass(frozen=True, slots=True)
class Request:
    """The form of requests, and the response to a failure."""

    url: str = field(repr=False)  # its query may hold a key
    place: str  # the same for errors
    method: str
    headers: Mapping[str, str] = field(repr=False)
    batch: int
    timeout_s: float
    retries: int | None
    backoff_s: float
    is_skipping: bool
    tls: TLS | None


class AnswerError(DeliveryError):
    """An answer other than success.

    ``retry_after_s`` is the delay that the server asks for.
    """

    def __init__(self, status: int, words: str, retry_after_s: float = 0.0):
        is_transient = status in TRANSIENT or status >= 500
        super().__init__(f"answer {status}{words and ': '}{words}", is_transient)
        self.retry_after_s = retry_after_s


class HTTPSession(SlicedSession):
    """A session whose requests share a connection."""

    def __init__(self, request: Request, progress: Progress, checkpoint: str):
        super().__init__(checkpoint, progress, request.batch)
        self._request = request
        context = client_context(request.tls) if request.tls is not None else None
        self._pool = urllib3.PoolManager(
            num_pools=1, retries=False, timeout=request.timeout_s, ssl_context=context
        )

    def deliver(self, part: Slice) -> None:
        """Make one request; raise AnswerError or urllib3's HTTPError if it was not accepted."""
        request = self._request
        headers = {**request.headers, IDEMPOTENCY_KEY: part.key}
        fault_point("http.request")
        answer = self._pool.request(
            request.method, request.url, body=self._body(part), headers=headers, redirect=False
        )
        fault_point("http.answer")
        if 200 <= answer.status < 300:
            return
        error = AnswerError(answer.status, _shown(answer.data), _seconds(answer.headers))
        if error.is_transient or not request.is_skipping:
            raise error
        LOGGER.warning("%s refused %s, which is skipped: %s", request.place, part.key, error)

    def _body(self, part: Slice) -> bytes:
        if self._request.batch == 1:
            return part.outputs[0]
        return b"".join(output.removesuffix(b"\n") + b"\n" for output in part.outputs)

    def close(self) -> None:
        """Close the connection."""
        self._pool.clear()


def _shown(body: bytes) -> str:
    return " ".join(body.decode("utf-8", "replace").split())[:SHOWN_MAX]


def _seconds(headers: urllib3.HTTPHeaderDict) -> float:
    """Return the seconds in Retry-After, at most BACKOFF_S_MAX; 0 if it is no number."""
    given = headers.get("Retry-After", "")
    return min(BACKOFF_S_MAX, float(given)) if given.isascii() and given.isdigit() else 0.0


class HTTPSystem(System):
    """A URL and its retries."""

    errors: ClassVar[tuple[type[Exception], ...]] = (HTTPError, AnswerError)
    stalled_s = ENDLESS_S  # a request has a bound of its own

    def __init__(self, request: Request, sink: str):
        self._request = request
        self._sink = sink
        self._progress = Progress()

    @property
    def target(self) -> str:
        return self._request.place

    def connect(self, checkpoint: str) -> Session:
        return HTTPSession(self._request, self._progress, checkpoint)

    def waiting_for(self, error: Exception) -> str:
        is_transient = not isinstance(error, SSLError)
        if isinstance(error, AnswerError):
            is_transient = error.is_transient
        failures = self._progress.failures
        retries = self._request.retries
        if not is_transient or (retries is not None and failures > retries):
            return ""
        of = "" if retries is None else f" of {retries}"
        pause = self.pause_s(error)
        return f"{self._request.place} ({_sentence(error)}; retry {failures}{of} in {pause:g} s)"

    def pause_s(self, error: Exception) -> float:
        wanted = error.retry_after_s if isinstance(error, AnswerError) else 0.0
        return max(wanted, self._progress.pause_s(self._request.backoff_s))

    def refused(self, error: Exception, batch: PendingBatch | None, staging: Path) -> WallarooError:
        which = f"output of batch {batch.batch}" if batch else "output"
        times = self._progress.failures
        often = f" {times} times in a row, the last time with" if times > 1 else ":"
        return PeerError(
            f"{self._request.place} did not take {which} of sink '{self._sink}'{often} "
            f"{_sentence(error)}. Nothing is lost: committed output waits in {staging}. Correct "
            f"the URL, the headers or the server, or write on_refused='skip' to go on without what "
            f"is refused, then run again."
        )


def _sentence(error: Exception) -> str:
    """Return an error on one line, without the name of the client's object in front."""
    text = " ".join(str(error).split())
    is_own = isinstance(error, AnswerError)
    return text if is_own else re.sub(r"^HTTPS?Connection(Pool)?\(.*?\): ", "", text)


def open_committer(request: Request, sink: str, staging: Path, is_durable: bool) -> QueuedCommitter:
    """Open the committer of an HTTP sink; raise PeerError for a TLS file that cannot be used."""
    if request.tls is not None:
        client_context(request.tls)
    system = HTTPSystem(request, sink)
    return QueuedCommitter(sink, system, staging, is_durable=is_durable, points="http")
