"""Hypothesis, as all properties use it: no time limit per example (the machine may be busy) and no
folder of its own.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("wallaroo", deadline=None, database=None, print_blob=True)
settings.load_profile("wallaroo")
