"""Layout of a checkpoint folder.

It has folders, a format version, an identity and the plan.

Where it runs: everywhere.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from wallaroo.errors import CheckpointError, PeerError

VERSION = 8
# 5 had no owners: its commits are those of epoch 0; 6 has all windows by key, none by pane; 7 has
# no rows of due entries in chunks
READABLE = (5, 6, 7, VERSION)
FORMAT = "format.json"
COMMITS = "commits"
DELTAS = "deltas"
SNAPSHOTS = "snapshots"
SPOOL = "spool"
OUTBOX = "outbox"
VIEW = "view"
PLAN = "plan.json"  # a file
SAVEPOINT = "savepoint.json"  # the manifest of a savepoint, which no run opens as its checkpoint
ORIGIN = "origin.json"  # the savepoint that a checkpoint began from
OWNERS = "owners"  # kept when a fresh start deletes everything else
LOCK = "lock"
KEEPING = "replica.lock"  # held by the replica that keeps the copy
CRC = "crc32"  # the name, in such a file, of its own checksum; earlier versions wrote none
FOLDERS = (COMMITS, DELTAS, SNAPSHOTS, SPOOL, OUTBOX, VIEW)


def read_identity(root: Path) -> str:
    """Return the id of the checkpoint in ``root``.

    Raises CheckpointError if there is none, or if it is damaged or of another format version,
    PeerError if it cannot be read.
    """
    file = root / FORMAT
    try:
        content = json.loads(_checked(file))
        version = int(content["version"])
        identity = str(content["id"])
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{root} is not a checkpoint. Give the folder that `wallaroo run --checkpoint` was "
            f"given; or its URL, as the user and on the machine that it ran on last."
        ) from error
    except OSError as error:
        raise PeerError(
            f"{file} cannot be read: {error.strerror}. Make it readable to this user."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} is damaged. Restore it from a backup of the checkpoint."
        ) from error
    if version not in READABLE:
        check_version(str(root), version, VERSION)
    return identity


def read_plan(root: Path) -> str:
    """Return the JSON of the plan beside the checkpoint in ``root``.

    Raises OSError if it cannot be read, ValueError if it is damaged.
    """
    return _checked(root / PLAN)


def _checked(file: Path) -> str:
    """Return a file's JSON without its checksum.  Raises OSError, or ValueError: damaged."""
    return checked_json(file.read_text(encoding="utf-8"), file.name)


def checked_json(stored: str, name: str) -> str:
    """Return the JSON of a file's content without its checksum.  Raises ValueError: damaged."""
    content = json.loads(stored)
    if not isinstance(content, dict):
        raise ValueError(f"{name} is no JSON object")
    noted = content.pop(CRC, None)
    text = _canonical(content)
    if noted not in (None, _checksum(text)):
        raise ValueError(f"the checksum of {name} is wrong")
    return text


def with_checksum(text: str) -> bytes:
    """Return the content of the file for the JSON of a plan or an identity."""
    content = json.loads(text)
    return _canonical({**content, CRC: _checksum(_canonical(content))}).encode()


def _canonical(content: dict[str, object]) -> str:
    return json.dumps(content, indent=1, sort_keys=True)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def check_version(name: str, found: int, known: int) -> None:
    """Raise CheckpointError unless a file or folder of format version ``found`` is read here."""
    if found > known:
        raise CheckpointError(
            f"{name} has format version {found}; this program reads version {known}. Use a newer "
            f"wallaroo-spark."
        )
    if found < known:
        raise CheckpointError(
            f"{name} has format version {found}, of an earlier wallaroo-spark; this program reads "
            f"version {known}. Continue with the wallaroo-spark that made it, or give this one a "
            f"new folder, which begins without the old one's state."
        )
