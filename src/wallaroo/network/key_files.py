"""Key files: credentials that a server writes for its clients.

Where it runs: a replica and its run; a driver and its ingress hosts.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from wallaroo.durable.whole_file import write_whole
from wallaroo.errors import PeerError
from wallaroo.network.proved_connections import SECRET_BYTES


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The content of a key file: the credentials of either side."""

    secret: str = field(repr=False)  # hexadecimal
    certificate: str = field(default="", repr=False)  # the listener's, PEM; empty: without TLS


def read_key(path: Path, writer: str) -> KeyFile:
    """Read a key file, written by ``writer`` ("`wallaroo replica`").  Raises PeerError."""
    way_out = f"Give a copy of the file that {writer} wrote into its folder."
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeyFile)
    except OSError as error:
        raise PeerError(f"{path} cannot be read: {error.strerror}. {way_out}") from error
    except msgspec.MsgspecError as error:
        raise PeerError(f"{path} is not a key file. {way_out}") from error


def kept_key(path: Path, writer: str, certificate: str) -> KeyFile:
    """Return the key in a file, written if there is none, with this certificate (PEM)."""
    secret = secrets.token_bytes(SECRET_BYTES).hex()
    if path.exists():
        stored = read_key(path, writer)
        secret = stored.secret
        if stored.certificate == certificate:
            return stored
    key = KeyFile(secret, certificate)
    write_whole(path, msgspec.json.encode(key), is_durable=True, points=path.name)
    return key
