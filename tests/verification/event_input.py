"""Figures of the generated input that several cases share."""

from __future__ import annotations

KEYS = 300
STEP_MS = 5  # event time between two events
BEGIN_MS = 1_000_000_000_000
