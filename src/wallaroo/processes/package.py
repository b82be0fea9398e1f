"""The package's place on disk, for processes that import the same one.

Where it runs: everywhere.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE_ROOT = Path(__file__).parents[1]
