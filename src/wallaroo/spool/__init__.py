"""The spool: a replayable, segmented log of frames per source.

Where it runs: the writer in the ingress or a feeder, readers in the driver and in workers.  These
are the public names of the package.
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
from wallaroo.spool.writer import SpoolWriter

__all__ = [
    "Chunk",
    "SpoolHead",
    "Boundary",
    "SpoolDiskError",
    "SpoolFullError",
    "SpoolReader",
    "SpoolWriter",
    "folder_of",
    "read_tail",
    "write_tail",
]
