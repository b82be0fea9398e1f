"""Figures of campaigns, as lines of JSON.

Where it runs: the process of a campaign.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def report(figures: Mapping[str, Any], path: str | None) -> None:
    """Print a campaign's figures; append them to a file, if one is named."""
    print(figures)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{json.dumps(figures)}\n")
