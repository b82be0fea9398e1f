"""Where this package lies on disk, for processes that have to import the same one.

Where it runs: everywhere.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE_ROOT = Path(__file__).parent
