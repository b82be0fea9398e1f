"""Former module names that occur in pickles and plans of older checkpoints.

A checkpoint names the classes of state objects by module, and may be opened years later: a module
that is moved stays importable under the name it had.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # the module of these two bases is slow to import, and nothing needs them at run time
    Loader = MetaPathFinder = object

# former and present names of modules
MOVED = {
    "wallaroo.gathering": "wallaroo.steps.batching",
    "wallaroo.local_cluster": "wallaroo.spark.local_cluster",
    "wallaroo.verify.cases": "wallaroo.testing.verify.cases",
    "wallaroo.verify": "wallaroo.testing.verify",
    "wallaroo.experimental.client": "wallaroo.compat.programs.client",
    "wallaroo.experimental.connectors": "wallaroo.compat.programs.connectors",
    "wallaroo.experimental.connector_wire_messages": (
        "wallaroo.compat.programs.connector_wire_messages"
    ),
}


def current_class(name: str) -> str:
    """Return the present name of a class, as ``module.qualified_name``.

    >>> current_class("wallaroo.gathering.Waiting"), current_class("my_app.Total")
    ('wallaroo.steps.batching.Waiting', 'my_app.Total')
    """
    module, _, leaf = name.rpartition(".")
    return f"{MOVED[module]}.{leaf}" if module in MOVED else name


def install() -> None:
    """Make the former names importable in this process."""
    sys.meta_path.append(_Finder())


class _Finder(MetaPathFinder):
    """Import finder of former names, tried last."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of an alias, or None for any other name."""
        return ModuleSpec(fullname, _Alias()) if fullname in MOVED else None


class _Alias(Loader):
    """Loader that installs the present module under its former name."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system create an empty module, which the present one replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Import the module under its present name; the import system returns what is there."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(MOVED[name])
