"""Make the input and the expected output of `celsius.py`, without Wallaroo.

    python celsius_data.py celsius.msg celsius_expected.txt

1000 temperatures from -100.0 to 99.8 in steps of 0.2.  A 32-bit float does not hold 0.2 exactly, so
what is expected is worked out from the float that is really sent.

Where it runs: pure, save for the command line.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def temperatures() -> list[float]:
    """The temperatures as 32-bit floats hold them, in degrees Celsius."""
    return [ctypes.c_float(-100 + tenth / 5).value for tenth in range(1000)]


def frames() -> bytes:
    """The temperatures as they are sent: length (4), then the float, all big end first."""
    return b"".join(
        b"\x00\x00\x00\x04"
        + bytes(ctypes.c_float(celsius))[:: -1 if sys.byteorder == "little" else 1]
        for celsius in temperatures()
    )


def expected() -> list[str]:
    """The lines that come out, in order."""
    return [repr(celsius * 1.8 + 32) for celsius in temperatures()]


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(frames())
    Path(sys.argv[2]).write_text("\n".join(expected()) + "\n")
