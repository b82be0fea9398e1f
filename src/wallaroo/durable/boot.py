"""The boot id, different after each start of this machine."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN = "boot"  # instead of an id


def boot_id() -> str:
    """Return the kernel's boot id; `UNKNOWN` if the system has none."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return UNKNOWN
