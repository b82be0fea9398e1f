"""Format versions: refusal of files that a newer program wrote.

Where it runs: everywhere that reads its own files.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.errors import CheckpointError


def check_version(path: Path | str, version: int, known: int) -> None:
    """Raise CheckpointError for a file whose format is newer than ``known``."""
    if version > known:
        raise CheckpointError(
            f"{path} has format version {version}; this version of wallaroo reads up to {known}. "
            "Use the newer wallaroo that wrote it, or another checkpoint directory."
        )
