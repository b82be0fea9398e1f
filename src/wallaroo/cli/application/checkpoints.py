"""Checkpoints that a command line names by folder or URL.

Where it runs: a terminal.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.durable.folders import is_store_url
from wallaroo.errors import CheckpointError
from wallaroo.state.log.layout import FORMAT
from wallaroo.state.store.stored_checkpoint import checkpoint_folder


def checkpoint_here(place: str) -> Path:
    """Return the folder of a checkpoint; raise CheckpointError if it is a URL without a cache."""
    folder = checkpoint_folder(place)
    if is_store_url(place) and not (folder / FORMAT).exists():
        raise CheckpointError(
            f"this machine has no cache of {place}. If it is a checkpoint, look on the machine "
            f"and as the user that ran it last, or save it in a folder (`wallaroo state save "
            f"{place} FOLDER`) and name that. If it is a savepoint, start a run from it "
            f"(`wallaroo run --from-savepoint {place}`), or copy its files, which are below "
            f"{place.rstrip('/')}/files/, to a folder and name that."
        )
    return folder
