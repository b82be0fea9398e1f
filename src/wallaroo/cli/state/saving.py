"""The verb ``save`` of ``wallaroo state``, which writes a savepoint.

Where it runs: a terminal, beside a running application or without one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

from wallaroo.checkpoints.savepoints.saving import save
from wallaroo.cli.state.looking import open_files_allowed
from wallaroo.cli.terminal.formatting import counted, duration

NICENESS = 10  # the application comes first
REPORT_S = 2.0  # between two lines of progress


def add_save(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "save",
        allow_abbrev=False,
        help="save a checkpoint as a savepoint, to start other runs from",
        description=(
            "Save the state, the positions of sources and the identities of sinks of a stopped or "
            "a running application as they are at its newest commit, with the input that waits. "
            "Nothing is locked. `wallaroo run --from-savepoint` starts from it."
        ),
    )
    verb.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="what wallaroo run --checkpoint was given"
    )
    verb.add_argument("target", metavar="TARGET", help="a new or empty folder, or s3://BUCKET/PATH")
    verb.set_defaults(handler=save_command)


def save_command(options: argparse.Namespace) -> None:
    """Save a checkpoint; print progress, and what was saved."""
    os.nice(NICENESS)
    open_files_allowed()
    begun_s = time.monotonic()
    reported_s = begun_s

    def report(line: str) -> None:
        nonlocal reported_s
        if time.monotonic() - reported_s >= REPORT_S:
            reported_s = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    manifest = save(options.checkpoint, options.target, report)
    took = duration(time.monotonic() - begun_s)
    files = counted(len(manifest.files), "file")
    print(
        f"saved commit {manifest.commit} in {options.target}: {files}, {manifest.size:,} bytes, "
        f"in {took}"
    )
