"""Names of a package whose modules are loaded at their first use (PEP 562).

Every command, every worker and every test pays for ``import wallaroo``, so the names that most
applications never use wait.  For type checkers and editors a face that loads its names so has a
stub beside it, written by ``scripts/write_stubs.py``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package``; ``homes`` has the module of each exported name.

    A name whose module is itself, ``package.name``, is that module.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(homes[name])
        value = module if homes[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)  # so that the next access does not come here
        return value

    return load
