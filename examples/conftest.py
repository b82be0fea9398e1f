"""Importable examples: each module under its own name, as `wallaroo run` imports it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(folder) for folder in Path(__file__).parent.iterdir() if folder.is_dir()]
