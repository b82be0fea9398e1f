"""Steps that several applications of the suite share.

Events are strings, mostly ``key number``; outputs are lines that begin with the key, so that order
per key can be checked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wallaroo


@wallaroo.encoder("as text")
def text(event: Any) -> str:
    return str(event)


@wallaroo.key_extractor("by itself")
def by_itself(event: str) -> str:
    return event


@wallaroo.key_extractor("by first word")
def by_first_word(event: str) -> str:
    return event.partition(" ")[0]


@wallaroo.computation("pass on")
def pass_on(event: Any) -> Any:
    return event


def source(folder: Path, name: str = "in") -> wallaroo.Pipeline[str]:
    """A source of the lines of ``<name>.txt``."""
    return wallaroo.source(
        f"from {name}", wallaroo.FileSourceConfig(name, str(folder / f"{name}.txt"))
    )


def sink(folder: Path, name: str = "out") -> wallaroo.FileSinkConfig:
    """A sink into ``<name>.txt``, one output a line."""
    return wallaroo.FileSinkConfig(folder / f"{name}.txt", text, form="lines")
