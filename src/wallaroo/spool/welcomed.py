"""Ingress hosts that may have acknowledged input but are in no commit.

Where it runs: driver.

The invariant: a host has a file here before it may begin to receive, until the commits of all
sources list it.  So a run that ends between the two is followed by one that knows the host.
"""

from __future__ import annotations

from pathlib import Path

from wallaroo.durable.folders import make_private
from wallaroo.durable.whole_file import write_whole

_FOLDER = "ingresses"  # next to the spools: a new start of the checkpoint deletes both


class WelcomedHosts:
    """A file for each host, with its key as name.

    Runs that do not know each other may write.
    """

    def __init__(self, spool_root: Path):
        self._folder = spool_root / _FOLDER

    def keys(self) -> list[str]:
        """Return the keys of the hosts."""
        return sorted(path.name.replace("@", "/") for path in self._folder.glob("*@*"))

    def add(self, key: str) -> None:
        """Add a host, which survives a power cut.  Raises OSError."""
        make_private(self._folder, is_durable=True)
        write_whole(self._path(key), b"", is_durable=True, points="ingress.welcomed")

    def remove(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "@")
