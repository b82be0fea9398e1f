"""Detection of user modules that changed since a worker imported them.

A worker process may outlive a run: Spark keeps it for the next one of the same session, for which a
module may have been edited, and loaded again in the driver.

Where it runs: driver and worker.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from wallaroo.user_code.references import importable_module
from wallaroo.user_code.user_frames import PACKAGE

Stamps = Mapping[str, tuple[int, int]]  # by module: when its file was written (ns), and its size

_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OTHERS = frozenset({PACKAGE, "__main__"})
_imported: dict[str, tuple[int, int]] = {}  # those of the runs of this process
_values = [b""]  # values left by the newest run's set-up


def stamps() -> Stamps:
    """Return the stamps of the modules in this process that are not installed."""
    loaded: dict[str, tuple[int, int]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        importable = importable_module(name)
        if file and importable.partition(".")[0] not in _OTHERS and not is_installed(str(file)):
            with suppress(OSError):
                status = os.stat(file)
                loaded[importable] = status.st_mtime_ns, status.st_size
    return loaded


def is_installed(file: str) -> bool:
    """Return whether a module's file is one of Python's library, or of a package."""
    return file.startswith(_LIBRARY) or any(part in file for part in _PACKAGES)


def forget_changed(current: Stamps, values: bytes = b"") -> None:
    """Forget all of the user's modules if one of them is older than the driver's.

    Unchanged ones may hold names of the others. ``values``: those that the application's set-up
    left in them; a module with other values is forgotten as well.
    """
    has_others = bool(_imported) and _values[0] != values
    _values[0] = values
    if has_others or any(_imported.get(name, stamp) != stamp for name, stamp in current.items()):
        for name in (*_imported, *current):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        _imported.clear()
    _imported.update(current)
