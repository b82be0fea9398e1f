"""The spool: a replayable, segmented log of frames per source.

Where it runs: the writer in the ingress or a feeder, readers in the driver and in workers.  These
are the names for both; the writer is ``spool.writer``'s, which readers do without.
"""

from wallaroo.spool.format import (
    Boundary,
    Chunk,
    SpoolDiskError,
    SpoolFullError,
    SpoolHead,
    folder_of,
)
from wallaroo.spool.reader import SpoolReader
from wallaroo.spool.tail import read_tail, write_tail

__all__ = [
    "Chunk",
    "SpoolHead",
    "Boundary",
    "SpoolDiskError",
    "SpoolFullError",
    "SpoolReader",
    "folder_of",
    "read_tail",
    "write_tail",
]
