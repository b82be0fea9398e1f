"""Reader of a view's shards: ``python -m wallaroo.checkpoints.maintenance.view_reader FOLDER...``.

Where it runs: a process of its own.  Prints for each shard, as JSON, the number of entries read and
the damage found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import lmdb

from wallaroo.state.views.entry_codec import checked

HEADER_BYTES = 2 * 4096
MARKS = b"\xff\xff"  # prefix of the keys that are not entries: state.view


def read_shard(shard: Path) -> dict[str, int | str]:
    entries = 0
    size = 0
    wrong = ""
    try:
        if (shard / "data.mdb").stat().st_size < HEADER_BYTES:
            return {"entries": 0, "bytes": 0, "wrong": "It is shorter than its header."}
        environment = lmdb.open(str(shard), readonly=True, create=False)
        pages = environment.info()["last_pgno"] + 1
        if (shard / "data.mdb").stat().st_size < pages * environment.stat()["psize"]:
            return {"entries": 0, "bytes": 0, "wrong": "It is shorter than its header says."}
        with environment.begin() as read:
            for key, value in cast(Iterable[tuple[bytes, bytes]], read.cursor()):
                if key.startswith(MARKS):
                    continue
                if checked(key, value) is None:
                    wrong = "The checksum of an entry is wrong."
                entries += 1
                size += len(key) + len(value)
    except lmdb.Error as error:
        wrong = f"LMDB cannot read it: {error}"
    return {"entries": entries, "bytes": size, "wrong": wrong}


if __name__ == "__main__":
    for shard in sys.argv[1:]:
        print(json.dumps(read_shard(Path(shard))), flush=True)
