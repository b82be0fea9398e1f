"""Package exports loaded at first use (PEP 562).

Every command, worker and test pays for ``import wallaroo``, so names that most applications never
use are deferred. For type checkers and editors, such a package has a stub beside it, written by
``scripts/write_stubs.py``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``package``; ``homes`` has the module of each exported name.

    A name whose home is ``package.name`` is that module.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = importlib.import_module(homes[name])
        value = module if homes[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)  # so that the next access bypasses this function
        return value

    return load
