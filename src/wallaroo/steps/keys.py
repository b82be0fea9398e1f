"""Types of keys.

Where it runs: everywhere.
"""

from __future__ import annotations

KeyPart = str | bytes | int
Key = KeyPart | tuple[KeyPart, ...]
WANTED = "str, bytes, int, or a tuple of these"
