"""Errors of external systems' clients, and their meaning for a run.

Where it runs: driver and feeder processes; pure.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from wallaroo.errors import PeerError


def sentence_of(error: Exception) -> str:
    """Return an error's text on one line."""
    return " ".join(str(error).split()) or type(error).__name__


def is_untrusted(error: object) -> bool:
    """Return whether a server's certificate was refused: the error, or the one that it is from."""
    if not isinstance(error, BaseException):
        return False
    origins = (error.__cause__, error.__context__, *error.args)
    return isinstance(error, ssl.SSLCertVerificationError) or any(map(is_untrusted, origins))


@dataclass(frozen=True, slots=True)
class ClientErrors:
    """A client's exceptions.

    One is transient if the same call may succeed later.
    """

    types: tuple[type[Exception], ...]
    is_transient: Callable[[Exception], bool]
    sentence: Callable[[Exception], str] = sentence_of


@contextmanager
def readable_address(user: str) -> Iterator[None]:
    """Turn the error for an address into a PeerError that names its source or sink."""
    try:
        yield
    # errors that its query may cause
    except (ValueError, TypeError, SyntaxError, OSError) as error:
        raise PeerError(f"{user}: the address cannot be read: {error}.") from None
