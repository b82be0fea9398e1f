"""HTTPSinkConfig: outputs as the bodies of HTTP requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from wallaroo.network.tls import TLS
from wallaroo.network.urls import place_of, url_problem
from wallaroo.sinks.queued.queued_config import QueuedSinkConfig
from wallaroo.sinks.target_record import without_secrets
from wallaroo.steps.kinds import Encoder
from wallaroo.steps.option_values import check_choice, is_count, is_seconds, keep_headers

EXAMPLE = "https://host/path"
STOP = "stop"
SKIP = "skip"
OWN_HEADERS = {"idempotency-key", "content-type", "content-length", "transfer-encoding"}
METHODS = ("POST", "PUT", "PATCH")
JSON = "application/json"
JSON_LINES = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class HTTPSinkConfig(QueuedSinkConfig):
    """A sink that sends outputs to ``url``, in order; at least once.

    One request is made at a time.  It contains one output, or up to ``batch`` of them, one per
    line.  Its header ``Idempotency-Key`` is the commit's id and the output's number in it, and is
    the same whenever that request is retried: a server that remembers keys sees each output once.

    An answer of 2xx accepts a request.  After a lost connection, no answer within ``timeout_s``,
    408, 425, 429 and 5xx it is retried: after ``backoff_s``, then twice as long, up to 30 s, or
    after the time in ``Retry-After``, up to an hour; after ``retries`` of them in a row the run
    ends (``None``: without end).  Output waits meanwhile.  Any other answer is a refusal: with
    ``on_refused="stop"`` the run ends.  With ``"skip"`` the outputs of a refused request are sent
    again one by one, and those that are refused again are logged and dropped.

    ``headers`` are added to each request (for example ``Authorization``).  ``https://`` verifies
    the server by the system's authorities, or those of ``tls``.  Redirects are not followed.  Needs
    urllib3 where the driver runs.
    """

    kind: ClassVar[str] = "http"
    target_form: ClassVar[str] = "{0.place}"
    shown_options: ClassVar[str] = "{0.place!r}"
    system: ClassVar[str] = "wallaroo.connectors.http.committer:HTTPSystem"
    library: ClassVar[str] = "urllib3"

    url: str = field(repr=False)  # its query may hold a key
    encoder: Encoder[Any] | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content_type: str = ""
    batch: int = 1
    timeout_s: float = 30.0
    retries: int | None = None
    backoff_s: float = 0.25
    on_refused: str = STOP
    tls: TLS | None = None
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if problem := url_problem(self.url, EXAMPLE, "http", "https"):
            raise self._wrong(*problem)
        parts = urlsplit(self.url)
        if not parts.hostname:
            raise self._wrong("The URL names no host.", f"Write {EXAMPLE!r}.")
        if parts.username is not None:
            raise self._wrong(
                "The URL holds a user's name.", "Give headers={'Authorization': ...} instead."
            )
        if self.method not in METHODS:
            raise self._wrong(f"method={self.method!r} sends no body.", f"Use {METHODS}.")
        if not isinstance(self.batch, int) or self.batch < 1:
            raise self._wrong(f"batch={self.batch!r} outputs cannot be sent.", "Give 1 or more.")
        if not (is_seconds(self.timeout_s) and self.timeout_s and is_seconds(self.backoff_s)):
            raise self._wrong("timeout_s or backoff_s is not a time.", "Give seconds.")
        if self.retries is not None and not is_count(self.retries, 0):
            raise self._wrong(
                f"retries={self.retries!r} is not a number.", "Give 0 or more, or None."
            )
        check_choice(self, "on_refused", (STOP, SKIP))
        keep_headers(self, "headers")
        own = OWN_HEADERS & set(map(str.lower, self.headers))
        if own:
            what = f"The header {own.pop()} is the sink's own."
            raise self._wrong(what, "Leave it out of headers; content_type says what is sent.")

    @property
    def place(self) -> str:
        """Return the URL without the parts that may be secret."""
        return place_of(self.url)

    @property
    def body_type(self) -> str:
        """Return the value of the header ``Content-Type``."""
        return self.content_type or (JSON if self.batch == 1 else JSON_LINES)

    @property
    def address(self) -> str:
        return without_secrets(self.url).removeprefix(self.place)
