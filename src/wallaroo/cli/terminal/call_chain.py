"""The application's lines between a step's function and its error."""

from __future__ import annotations

import sysconfig

from wallaroo.errors import WallarooError

_LIBRARY = f"{sysconfig.get_path('stdlib')}/"


def call_chain(error: WallarooError) -> str:
    """Return the application's lines between a step's function and the error, outermost first.

    The result is "" if there is only the step's own line.  The error's ``trace`` has the frames of
    all files but this package's; those of Python's own library are left out.  The last line repeats
    the cause.
    """
    lines = str(getattr(error, "trace", "")).splitlines()
    shown: list[str] = []
    frames = 0
    is_shown = False
    for line in lines:
        if line.lstrip().startswith('File "'):
            is_shown = not is_of_library(line.split('"')[1])
            frames += is_shown
        if is_shown and line.startswith("  ") and "^" not in line:
            shown.append(f"  {line}")
    return "\n  called from:\n" + "\n".join(shown) if frames > 1 else ""


def is_of_library(file: str) -> bool:
    """Return whether a file of a traceback is one of Python's own library."""
    return file.startswith((_LIBRARY, "<frozen ")) and "site-packages" not in file
