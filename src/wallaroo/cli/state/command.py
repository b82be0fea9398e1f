"""``wallaroo state``: inspection and maintenance of the state in a checkpoint."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.savepoints.saving import save
from wallaroo.cli.application.checkpoints import checkpoint_here
from wallaroo.cli.state.looking import diff_command, export_command, get_command, list_command
from wallaroo.cli.state.upkeep import add_drop, add_load, add_rename, add_rollback, add_verify
from wallaroo.cli.terminal.formatting import counted, duration
from wallaroo.cli.terminal.parser import whole
from wallaroo.processes.open_files import allow_many_files

LIMIT_DEFAULT = 100  # lines of a list shown by default
NICENESS = 10  # the application comes first
REPORT_S = 2.0  # between two lines of progress


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "state",
        allow_abbrev=True,
        help="inspect, save, verify, roll back and remove state in a checkpoint",
        description=(
            "Look at the state in a checkpoint, of a stopped or a running application: list, get, "
            "export, diff, save and verify change and lock nothing. Of a stopped one: roll it "
            "back, remove state from it, rename it, load it from a table."
        ),
    )
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_list(verbs)
    _add_get(verbs)
    _add_export(verbs)
    _add_diff(verbs)
    _add_save(verbs)
    add_verify(verbs)
    add_rollback(verbs)
    add_drop(verbs)
    add_rename(verbs)
    add_load(verbs)


def _add_list(verbs: Any) -> None:
    verb = _add_verb(
        verbs,
        "list",
        "steps with their sizes; the keys of one step; or the retained commits",
        list_command,
    )
    verb.add_argument("--commits", action="store_true", help="list the retained commits")
    verb.add_argument(
        "--limit",
        type=whole(1),
        default=LIMIT_DEFAULT,
        metavar="N",
        help="lines shown (default: %(default)s)",
    )
    verb.add_argument(
        "--prefix", default="", metavar="P", help="with --step: only keys with this prefix"
    )
    _add_commit(verb)


def _add_get(verbs: Any) -> None:
    verb = _add_verb(verbs, "get", "the state of one key", get_command)
    verb.add_argument("key", metavar="KEY", help="the key, plain or as printed by list")
    verb.add_argument(
        "--key-type",
        choices=("str", "bytes", "int", "tuple"),
        help="(default: the first type that has the key)",
    )
    _add_app(verb)
    _add_commit(verb)


def _add_export(verbs: Any) -> None:
    verb = _add_verb(verbs, "export", "all state, one JSON object a line", export_command)
    verb.add_argument("--json", action="store_true", help="write JSON lines, the only form")
    verb.add_argument(
        "--out", type=Path, metavar="FILE", help="write to this file (default: standard output)"
    )
    _add_app(verb)
    _add_commit(verb)


def _add_diff(verbs: Any) -> None:
    verb = _add_verb(
        verbs, "diff", "keys added, changed and removed between two commits", diff_command
    )
    verb.add_argument(
        "--from", dest="start", type=int, required=True, metavar="N", help="the older commit"
    )
    verb.add_argument("--to", type=int, metavar="M", help="the newer commit (default: the newest)")
    _add_app(verb)


def _add_verb(
    verbs: Any, name: str, what: str, handler: Callable[[argparse.Namespace], None]
) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=what)
    verb.add_argument(
        "--checkpoint",
        type=checkpoint_here,
        required=True,
        metavar="DIR",
        help="the folder given to wallaroo run --checkpoint",
    )
    verb.add_argument("--step", metavar="NAME", help="only this state step")
    verb.set_defaults(handler=handler)
    return verb


def _add_commit(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--commit", type=int, metavar="N", help="state after batch N (default: the newest)"
    )


def _add_app(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--app", metavar="APP", help="import the application and read state with its own classes"
    )


def _add_save(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "save",
        help="save a checkpoint as a savepoint, from which other runs can start",
        description=(
            "Save the state, the positions of sources and the identities of sinks of a stopped or "
            "a running application as they are at its newest commit, with the input that waits. "
            "Nothing is locked. `wallaroo run --from-savepoint` starts from it."
        ),
    )
    verb.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="the argument of wallaroo run --checkpoint"
    )
    verb.add_argument("target", metavar="TARGET", help="a new or empty folder, or s3://BUCKET/PATH")
    verb.set_defaults(handler=save_command)


def save_command(options: argparse.Namespace) -> None:
    """Save a checkpoint; print progress, and what was saved."""
    os.nice(NICENESS)
    allow_many_files()
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
