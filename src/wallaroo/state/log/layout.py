"""Layout of a checkpoint folder: folders, format version, identity, and the plan beside it.

Where it runs: everywhere.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from wallaroo.errors import CheckpointError, PeerError

VERSION = 5
FORMAT = "format.json"
COMMITS = "commits"
DELTAS = "deltas"
SNAPSHOTS = "snapshots"
SPOOL = "spool"
OUTBOX = "outbox"
VIEW = "view"
PLAN = "plan.json"  # a file
CRC = "crc32"  # the name, in plan and format, of their own checksum; earlier versions wrote none
FOLDERS = (COMMITS, DELTAS, SNAPSHOTS, SPOOL, OUTBOX, VIEW)


def read_identity(root: Path) -> str:
    """Return the id of the checkpoint in ``root``.

    Raises CheckpointError if there is none, or if it is damaged or of another format version,
    PeerError if it cannot be read.
    """
    file = root / FORMAT
    try:
        content = json.loads(file.read_text())
        version = int(content["version"])
        identity = str(content["id"])
        if content.get(CRC) not in (None, _checksum(f"{version} {identity}")):
            raise ValueError("the checksum is wrong")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(
            f"{root} is no checkpoint. Give the folder that `wallaroo run --checkpoint` was given."
        ) from error
    except OSError as error:
        raise PeerError(
            f"{file} cannot be read: {error.strerror}. Make it readable to this user."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} is damaged. Restore it from a backup of the checkpoint."
        ) from error
    check_version(str(root), version, VERSION)
    return identity


def identity_bytes(identity: str) -> bytes:
    """Return the content of the file for a checkpoint's id."""
    checksum = _checksum(f"{VERSION} {identity}")
    return json.dumps({"version": VERSION, "id": identity, CRC: checksum}).encode()


def read_plan(root: Path) -> str:
    """Return the JSON of the plan beside the checkpoint in ``root``.

    Raises OSError if it cannot be read, ValueError if it is damaged.
    """
    plan = json.loads((root / PLAN).read_text(encoding="utf-8"))
    if not isinstance(plan, dict):
        raise ValueError(f"{PLAN} is no JSON object")
    noted = plan.pop(CRC, None)
    text = json.dumps(plan, indent=1, sort_keys=True)
    if noted not in (None, _checksum(text)):
        raise ValueError(f"the checksum of {PLAN} is wrong")
    return text


def plan_bytes(text: str) -> bytes:
    """Return the content of the file for a plan's canonical JSON."""
    return json.dumps({**json.loads(text), CRC: _checksum(text)}, indent=1, sort_keys=True).encode()


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
            f"version {known}. Go on with the wallaroo-spark that made it, or give this one a "
            f"new folder, which begins without the old one's state."
        )
