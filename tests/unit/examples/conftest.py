"""Make every example's module importable under its own name, as `wallaroo run` does, and say where
the examples are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
for folder in sorted(EXAMPLES.iterdir()):
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture
def examples() -> Path:
    """The folder of all examples."""
    return EXAMPLES
