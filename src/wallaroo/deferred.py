"""Names of a package whose modules are loaded late (PEP 562).

A module is loaded at the first use of one of its names.

Where it runs: everywhere.  Every command, every worker and every test pays for ``import wallaroo``,
so the names that most applications never use wait.  A package that defers names lists them under
``TYPE_CHECKING`` as well, so that type checkers and editors see ordinary imports, and sets
``__getattr__`` only outside of that, so that they still find misspelled names.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def deferred(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package``; ``homes`` are its exported names by module."""
    modules = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    return load
