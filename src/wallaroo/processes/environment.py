"""The environment of a child that runs this package.

Where it runs: every process that starts such a child.
"""

from __future__ import annotations

import os

from wallaroo.processes.package import PACKAGE_ROOT


def python_environment(**changes: str) -> dict[str, str]:
    """Return this process's environment, in which Python finds this very package first."""
    path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT.parent), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **changes}
