"""The offsets of a batch, as Spark's offset log states them.

Where it runs: driver.  The log's format: a line ``v1`` (or later), a line of metadata, then one
line of JSON per source; we have one source.
"""

from __future__ import annotations

import json
from pathlib import Path

from wallaroo.errors import InternalError
from wallaroo.runtime.intake import Ends
from wallaroo.sources.log import from_stored


def read_offsets(checkpoint: Path, spark_batch: int) -> Ends:
    """Return where batch ``spark_batch`` ends in every source (the empty name is the source
    planner's own).

    Spark has written this before it calls us.
    """
    lines = (checkpoint / "offsets" / str(spark_batch)).read_text().strip().split("\n")
    try:
        stored = json.loads(lines[-1])
        return from_stored({name: position for name, position in stored.items() if name})
    except (ValueError, AttributeError, TypeError) as error:
        raise InternalError(
            f"Spark's offset log for its batch {spark_batch} cannot be read: {lines[-1][:200]!r}"
        ) from error
