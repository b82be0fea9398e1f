"""The dashboard's files: plain ES modules, styles and one vendored library.

Where it runs: driver (the files run in a browser).

Only files that were there when the package was built are served, by their plain name: no path
leads out of the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

INDEX = "index.html"
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, whole."""

    content: bytes
    content_type: str


@cache
def _names() -> frozenset[str]:
    return frozenset(entry.name for entry in files(__name__).joinpath("static").iterdir())


@cache
def _content(name: str) -> StaticFile:
    content = files(__name__).joinpath("static", name).read_bytes()
    return StaticFile(content, _TYPES[name.rpartition(".")[2]])


def read_file(name: str) -> StaticFile | None:
    """Return a file by name; None if there is none."""
    return _content(name) if name in _names() else None
