"""Object store operations, and the client of S3, GCS and Azure.

The invariants:

* ``create`` never replaces an object.  `TakenKeyError` and `NoAnswerError` decide nothing: a store
  reports a conflict for an object that does not exist (S3's 409), and a request whose answer was
  lost may have been carried out.  The creator then reads the object and compares its identity.
* The client's threads do not survive a fork, and it would hang in the child.  So a client is used
  only by the process that created it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from wallaroo.errors import InternalError, PeerError, optional_library

SCHEMES = ("s3", "gs", "az")
ALLOW_HTTP = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
REQUEST_S = 10
READERS = 8
WORDS_MAX = 200
_PASSING = re.compile(r"(408|409|429|5\d\d) ")  # a store's words about a state that passes

Answer = TypeVar("Answer")


class NoAnswerError(Exception):
    """Error for a request with an unknown outcome.

    There was no answer, or the store is overloaded.

    ``is_reached``: the store answered, with a transient status.
    """

    def __init__(self, words: str, *, is_reached: bool = False):
        super().__init__(words)
        self.is_reached = is_reached


class TakenKeyError(Exception):
    """The store's claim, possibly wrong, that an object exists."""


class ObjectStore(Protocol):
    """Operations on the objects below a URL.

    All raise NoAnswerError; keys have ``/``.
    """

    url: str

    def create(self, key: str, content: bytes) -> None:
        """Create an object unless there is one.  Raises TakenKeyError."""

    def put(self, key: str, content: bytes | Path) -> None:
        """Create or replace an object; ``content`` may be that of a file."""

    def get(self, key: str) -> bytes | None:
        """Return an object's content; None if there is none."""

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the contents of several objects, as ``get`` does."""

    def names(self, folder: str) -> list[str]:
        """Return the keys below a folder, sorted, without the folder."""

    def delete(self, key: str) -> None:
        """Delete an object if it exists."""

    def replace_stale(self, key: str, content: bytes) -> bool:
        """Replace an object on the condition of a version that it never had; return the success.

        It is for the probe: a store that keeps conditions refuses.
        """


class CloudObjects:
    """Objects below a URL of S3, Google Cloud Storage or Azure (``obstore``).

    Credentials come from the environment and the machine's identity, as the store's own tools find
    them; they are neither logged nor written.
    """

    def __init__(self, url: str):
        """Create the client without asking for anything yet.  Raises PeerError."""
        scheme, _, place = url.partition("://")
        if scheme not in SCHEMES or not place.strip("/"):
            raise PeerError(
                f"checkpoint {url} is not a place in an object store. Give s3://BUCKET/PATH, "
                f"gs://BUCKET/PATH, az://CONTAINER/PATH, or a folder."
            )
        with optional_library(f"checkpoint {url}", "obstore"):
            import obstore
        self.url = url.rstrip("/")
        self._process = os.getpid()
        self._api: Any = obstore
        self._errors = obstore.exceptions
        allow_http = os.environ.get(ALLOW_HTTP[scheme], "").lower() == "true"
        client = {
            "timeout": f"{REQUEST_S} s",
            "connect_timeout": "5 s",
            "allow_http": allow_http,  # stated here, as these options replace the environment's
        }
        # our own loop retries: only it knows whether a request was carried out
        retries = {"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_S)}
        from_url: Any = obstore.store.from_url
        try:
            self._store = from_url(self.url, client_options=client, retry_config=retries)
        except (self._errors.BaseError, ValueError) as error:
            raise PeerError(
                f"checkpoint {url} cannot be used: {_words(error)}. Correct the URL, or the "
                f"settings of the store in the environment."
            ) from error

    def create(self, key: str, content: bytes) -> None:
        self._asked(
            key,
            lambda: self._api.put(self._store, key, content, mode="create", use_multipart=False),
        )

    def put(self, key: str, content: bytes | Path) -> None:
        self._asked(key, lambda: self._api.put(self._store, key, content))

    def get(self, key: str) -> bytes | None:
        def read() -> bytes | None:
            try:
                return bytes(self._api.get(self._store, key).bytes())
            except (self._errors.NotFoundError, FileNotFoundError):
                return None

        return self._asked(key, read)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        with ThreadPoolExecutor(READERS) as readers:
            return list(readers.map(self.get, keys))

    def names(self, folder: str) -> list[str]:
        def read() -> list[str]:
            pages = self._api.list(self._store, prefix=f"{folder}/")
            paths = (each["path"] for page in pages for each in page)
            return sorted(path.removeprefix(f"{folder}/") for path in paths)

        return self._asked(folder, read)

    def delete(self, key: str) -> None:
        def delete() -> None:
            with contextlib.suppress(self._errors.NotFoundError, FileNotFoundError):
                self._api.delete(self._store, key)

        self._asked(key, delete)

    def replace_stale(self, key: str, content: bytes) -> bool:
        stale = {"e_tag": '"00000000000000000000000000000000"', "version": "1"}
        try:
            self._asked(
                key,
                lambda: self._api.put(self._store, key, content, mode=stale, use_multipart=False),
            )
        except TakenKeyError:
            return False
        return True

    def _asked(self, key: str, request: Callable[[], Answer]) -> Answer:
        """Return the answer to a request; turn the client's errors into ours."""
        if os.getpid() != self._process:
            raise InternalError("a client of an object store was used after a fork")
        errors = self._errors
        try:
            return request()
        except (errors.AlreadyExistsError, errors.PreconditionError) as error:
            # Azure answers a failed create by the second one
            raise TakenKeyError(_words(error)) from error
        except errors.NotSupportedError as error:
            raise conditions_ignored(self.url) from error
        except (errors.BaseError, FileNotFoundError) as error:
            raise self._failure(key, error) from error

    def _failure(self, key: str, error: Exception) -> PeerError | NoAnswerError:
        """Return the error for a failed request; a list states its status in words only."""
        errors = self._errors
        words = _words(error)
        is_refused = isinstance(error, errors.PermissionDeniedError | errors.UnauthenticatedError)
        if is_refused or words[:3] in ("401", "403"):
            return PeerError(
                f"{self.url}/{key} is refused: {words}. Give this process credentials with the "
                f"rights to read, create, list and delete objects there."
            )
        if isinstance(error, errors.NotFoundError | FileNotFoundError) or words[:3] == "404":
            return PeerError(
                f"{self.url} does not exist: {words}. Create the bucket, or correct the URL."
            )
        return NoAnswerError(words, is_reached=_PASSING.match(words) is not None)


def conditions_ignored(url: str) -> PeerError:
    """Return the error for a store with which two runs could overwrite each other's commits."""
    return PeerError(
        f"the object store of {url} ignores conditions (If-None-Match, If-Match), so two runs "
        f"could overwrite each other's commits. Use a store or a version of it that keeps them, or "
        f"a folder as the checkpoint."
    )


def _words(error: BaseException) -> str:
    """Return an error's status and the store's code for it, or its first line.

    A possible signature is left out.

    >>> _words(ValueError("no route to http://host/key?sig=secret now\\nDebug source: ..."))
    'no route to http://host/key now'
    >>> _words(ValueError("Server returned non-2xx status code: 403 Forbidden: <?xml ...>"))
    '403 Forbidden'
    >>> _words(ValueError("... status code: 403 Forbidden: <Error><Code>ExpiredToken</Code>"))
    '403 Forbidden, ExpiredToken'
    """
    text = str(error)
    line = text.strip().partition("\n")[0]
    if status := re.search(r"status code: (\d{3} [A-Za-z ]+)", line):
        code = re.search(r"<Code>(\w+)</Code>", text)
        return status[1].strip() + (f", {code[1]}" if code else "")
    return re.sub(r"\?[^\s'\"]*", "", line)[:WORDS_MAX].rstrip(".")
