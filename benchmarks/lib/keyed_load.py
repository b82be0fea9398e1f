"""The application of many keys (applications/many_keys.py) and its events, for benchmarks of state
on clusters.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from benchmarks.lib import loads

SOURCE = "Events"
FRAME = struct.Struct(">IQI")
# Batches are cut between chunks: chunks of a thousand events let a batch hold an exact number.
CHUNK_BYTES = 1_000 * FRAME.size


def many_keys(out_port: int) -> Any:
    """The application, on a free port."""
    import many_keys as application  # type: ignore[import-not-found]  # found by loads.prepare()

    return application.application_setup(
        ["--in", f"{SOURCE}@{loads.HOST}:0", "--out", f"{loads.HOST}:{out_port}"]
    )


def frames_of(keys: Iterable[int]) -> loads.Frames:
    """One event for each key, in chunks of a thousand."""
    pack, length = FRAME.pack, FRAME.size - 4
    return loads.Frames.of_equal(
        b"".join([pack(length, key, 1) for key in keys]), FRAME.size, CHUNK_BYTES
    )
