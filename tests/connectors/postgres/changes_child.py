"""An application that copies changes of a table, to be killed; run again, it continues.

Arguments: dsn, publication and slot, folder, the number of lines at which it stops, and `snapshot`
if it begins with one.
"""

from __future__ import annotations

from pathlib import Path

import wallaroo
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.serdes import Change
from wallaroo.sources import PostgresChangesConfig


@wallaroo.encoder
def as_line(change: Change[dict[str, object]]) -> str:
    return f"{change.op} {change.row['id']}\n"


def main(dsn: str, name: str, folder: str, lines: str, snapshot: str = "") -> None:
    """Copy changes until the file has so many lines."""
    out = Path(folder) / "out.txt"
    changes = PostgresChangesConfig(
        "changes", dsn, name, slot=name, poll_s=0.01, snapshot=bool(snapshot)
    )
    sink = wallaroo.FileSinkConfig(out, as_line)
    pipeline = wallaroo.source("changes", changes).to_sink(sink)
    options = RunOptions(checkpoint=Path(folder) / "state", status_address=None)
    run = Run(wallaroo.build_application("copy", pipeline), options, InProcessHost(2))
    run.begin()
    while not out.exists() or out.read_text().count("\n") < int(lines):
        assert not run.wait(0.01), run.exception
    run.stop()
    assert run.wait(400)
    if run.exception is not None:
        raise run.exception
