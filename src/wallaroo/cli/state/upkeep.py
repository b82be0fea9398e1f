"""The maintenance verbs of ``wallaroo state``: verify, rollback, drop, rename and load.

They check a checkpoint, move it back to an older commit, remove state from it, rename it, and start
it from tables.

``verify`` changes and locks nothing; the others need the application to be stopped, and acquire the
checkpoint's lock.

Exit codes: 0 if all is well or done, 1 if something is damaged or refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wallaroo.checkpoints.inspection.reader import ranges_text
from wallaroo.checkpoints.maintenance.editing import remove_keys, remove_step, rename_step
from wallaroo.checkpoints.maintenance.loading import MERGE, REPLACE, load_state
from wallaroo.checkpoints.maintenance.rollback import roll_back
from wallaroo.checkpoints.maintenance.verification import Report, verify
from wallaroo.cli.application.checkpoints import checkpoint_here
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.state.looking import candidates
from wallaroo.cli.terminal.formatting import counted
from wallaroo.cli.terminal.parser import add_application, application_args
from wallaroo.errors import CheckpointError, PipelineError, Problem
from wallaroo.state.store.stored_checkpoint import place_of
from wallaroo.user_code.references import load

WHOLE = 0
DAMAGED = 1


def add_verify(verbs: Any) -> None:
    verb = _add_verb(
        verbs,
        "verify",
        "read everything in a checkpoint and report what is damaged",
        "Read everything in a checkpoint, of a stopped or a running application, and report "
        "what is damaged and what follows from it. Nothing is changed or locked.",
        verify_command,
    )
    verb.add_argument("--json", action="store_true", help="print one JSON object")


def add_rollback(verbs: Any) -> None:
    verb = _add_verb(
        verbs,
        "rollback",
        "move state, sources and sinks back to an older commit",
        "Move state, sources and sinks of a stopped application back to an older commit, or "
        "report which of them cannot follow and change nothing. Input after that commit is "
        "processed again by the next run.",
        rollback_command,
        epilog="Arguments after APP go to the application's application_setup(args).",
    )
    verb.add_argument("--to", type=int, required=True, metavar="N", help="the commit to go back to")
    add_application(verb, "arguments of the application")


def add_drop(verbs: Any) -> None:
    verb = _add_verb(
        verbs,
        "drop",
        "remove the state of some keys, or of a whole step",
        "Remove state of a stopped application, as a commit of its own. The next event of "
        "such a key finds no state. Input and output are not touched.",
        drop_command,
    )
    verb.add_argument("step", metavar="STEP", help="the state step")
    verb.add_argument("keys", nargs="*", metavar="KEY", help="keys, plain or as printed by `list`")
    verb.add_argument("--all", action="store_true", help="all keys of the step")
    verb.add_argument(
        "--key-type",
        choices=("str", "bytes", "int", "tuple"),
        help="(default: the first type that has the key)",
    )


def add_rename(verbs: Any) -> None:
    verb = _add_verb(
        verbs,
        "rename",
        "move the state of a step to a new name",
        "Move the state of a step of a stopped application, with its timers and windows, to "
        "the name that the step has in the next version of the application. It is a commit of "
        "its own; input and output are not touched.",
        rename_command,
    )
    verb.add_argument("step", metavar="STEP", help="the state step's present name")
    verb.add_argument("new", metavar="NEW", help="its new name")


def add_load(verbs: Any) -> None:
    verb = _add_verb(
        verbs,
        "load",
        "start the state of a step from a table",
        "Start the state of a step of a stopped application, or of one that never ran, from a "
        "table, as a commit of its own. Each row is a key with the attributes of its state "
        "object; those that the table lacks are those of a new object.",
        load_command,
        epilog="Arguments after APP go to the application's application_setup(args).",
    )
    verb.add_argument("--step", required=True, metavar="NAME", help="the state step")
    verb.add_argument(
        "--key",
        required=True,
        action="append",
        metavar="COLUMN",
        help="the column with the key; of a tuple, one option for each part",
    )
    verb.add_argument(
        "--key-type",
        action="append",
        default=[],
        choices=("str", "int"),
        help="of CSV: the type of the key's column, one option for each --key",
    )
    rule = verb.add_mutually_exclusive_group()
    rule.add_argument(
        "--merge", action="store_true", help="keep the state of keys that the table lacks"
    )
    rule.add_argument(
        "--replace", action="store_true", help="remove the state of keys that the table lacks"
    )
    verb.add_argument(
        "table", metavar="TABLE", help="a file or folder of Parquet, CSV or JSON lines, or Delta"
    )
    add_application(verb, "arguments of the application")


def _add_verb(
    verbs: Any,
    name: str,
    what: str,
    description: str,
    handler: Callable[[argparse.Namespace], Any],
    epilog: str | None = None,
) -> argparse.ArgumentParser:
    """Add a verb whose first argument is the checkpoint's folder."""
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=what, description=description, epilog=epilog
    )
    verb.add_argument(
        "folder",
        type=checkpoint_here,
        metavar="DIR",
        help="the folder given to wallaroo run --checkpoint",
    )
    verb.set_defaults(handler=handler)
    return verb


def verify_command(options: argparse.Namespace) -> int:
    """Verify a checkpoint and print any damage; return the exit code."""
    report = verify(options.folder)
    print(json.dumps(_facts(report)) if options.json else _text(options.folder, report))
    return DAMAGED if report.damages else WHOLE


def _text(folder: Path, report: Report) -> str:
    lines = []
    for damage in report.damages:
        lines += [f"DAMAGED {damage.file}", f"  {damage.what}", f"  {damage.consequence}"]
    read = ", ".join(f"{count:,} {what}" for what, count in report.read.items() if count)
    lines.append(f"read: {read or 'nothing'}, {report.bytes:,} bytes")
    lines.append(f"commits whose state is whole: {ranges_text(list(report.whole)) or 'none'}")
    count = len(report.damages)
    verdict = f"{count} damaged" if count else "nothing is damaged"
    return "\n".join([*lines, f"checkpoint {place_of(folder)}: {verdict}"])


def _facts(report: Report) -> dict[str, Any]:
    return {
        "damages": [
            {"file": damage.file, "what": damage.what, "consequence": damage.consequence}
            for damage in report.damages
        ],
        "read": report.read,
        "bytes": report.bytes,
        "whole_commits": list(report.whole),
    }


def rollback_command(options: argparse.Namespace) -> None:
    """Roll a checkpoint back; print the dropped commits."""
    application = load_application(options.app, application_args(options))
    dropped = roll_back(options.folder, options.to, application.plan)
    if not dropped:
        print(f"checkpoint {options.folder} is at commit {options.to} already")
        return
    print(
        f"checkpoint {options.folder} is at commit {options.to}: "
        f"dropped {ranges_text(list(dropped))}; the next run processes their input again"
    )


def drop_command(options: argparse.Namespace) -> None:
    """Remove state; print the number of entries removed."""
    _require_one_choice(options)
    if options.all:
        removal = remove_step(options.folder, options.step)
    else:
        meanings = [_meanings(key, options.key_type) for key in dict.fromkeys(options.keys)]
        removal = remove_keys(options.folder, options.step, meanings)
    if not removal.entries:
        print(f"step '{options.step}' has no state at commit {removal.commit}")
        return
    entries = counted(removal.entries, "entry", "entries")
    print(f"removed {entries} of step '{options.step}' as commit {removal.commit}")


def _require_one_choice(options: argparse.Namespace) -> None:
    """Raise PipelineError unless keys are named or --all is given."""
    what = ""
    if not (options.keys or options.all):
        what = "neither keys nor --all were given."
    elif options.all and (options.keys or options.key_type):
        what = f"--all was given beside {'keys' if options.keys else '--key-type'}."
    if what:
        fix = "Name the keys to remove, or give --all alone to remove all state of the step."
        raise PipelineError(Problem("wallaroo state drop", "", what, fix))


def rename_command(options: argparse.Namespace) -> None:
    """Rename a step; print the commit of the rename."""
    commit = rename_step(options.folder, options.step, options.new)
    print(f"step '{options.step}' is '{options.new}' since commit {commit}")


def load_command(options: argparse.Namespace) -> None:
    """Load state; print the number of keys loaded, and progress of large tables."""
    application = load_application(options.app, application_args(options))
    rule = MERGE if options.merge else REPLACE if options.replace else ""
    rows_of_table = load("wallaroo.checkpoints.tables.files:rows_of_table")
    loaded = load_state(
        options.folder,
        application.plan,
        options.step,
        options.key,
        rows_of_table(options.table, options.key, options.key_type),
        rule,
        lambda rows: print(f"{rows:,} rows read", file=sys.stderr),
    )
    keys = counted(loaded.keys, "key")
    print(f"loaded {keys} into step '{options.step}' as commit {loaded.commit}")


def _meanings(text: str, key_type: str | None) -> list[Any]:
    meanings = candidates(text, key_type)
    if not meanings:
        raise CheckpointError(f"no {key_type} can be read from key {text!r}.")
    return meanings
