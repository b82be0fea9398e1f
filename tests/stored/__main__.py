"""``python -m tests.stored [NAME ...]``: write the checkpoints that later versions have to
continue, of these applications or of all.

Where it runs: by hand, with the code whose checkpoints are to be kept.  Each file of ``data/`` is a
run that was stopped after half of its input; ``<application>.json`` is the output of a run that was
not.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.stored.runner import DATA, HALF, HOSTS, IN_PROCESS, SOURCES, everything, run

NOT_KEPT = {"view", "log"}  # a cache, and what the run printed


def main() -> None:
    """Write the data of the applications and both hosts on Spark."""
    DATA.mkdir(exist_ok=True)
    for application in sys.argv[1:] or SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder), application, IN_PROCESS, slice(None))
            text = json.dumps(everything(Path(folder)), indent=0)
            (DATA / f"{application}.json").write_text(text + "\n")
        for host, command in HOSTS.items():
            folder = tempfile.mkdtemp()
            run(Path(folder), application, command, slice(HALF))
            with tarfile.open(DATA / f"{application}-{host}.tar.xz", "w:xz") as archive:
                archive.add(folder, ".", filter=_kept)
            shutil.rmtree(folder)


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if NOT_KEPT & set(Path(entry.name).parts):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
