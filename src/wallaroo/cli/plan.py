"""``wallaroo plan APP --checkpoint DIR``: comparison of an application with a checkpoint.

It reports whether the application may resume from that checkpoint, and if not, why.

Where it runs: a terminal.  Neither Spark nor Java is started; nothing is locked and nothing is
written, so a run may hold the checkpoint.

The exit code is 0 if a run would resume, 1 if it would refuse.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from wallaroo.api.application import Application
from wallaroo.cli.application.arguments import EPILOG, add_app, split_args, trailing_parser
from wallaroo.cli.application.loading import load_application
from wallaroo.inspection.compatibility import Finding, look, way_on
from wallaroo.plan.json import Verdict
from wallaroo.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.sinks.file.config import FileSinkConfig

COMPATIBLE = 0
INCOMPATIBLE = 1


def add_parser(subparsers: Any) -> None:
    """Add ``plan`` to the commands."""
    parser = subparsers.add_parser(
        "plan",
        allow_abbrev=False,
        help="compare an application with a checkpoint",
        description=(
            "Say whether an application may go on from a checkpoint, and why not. Nothing "
            "is run and nothing is touched."
        ),
        epilog=EPILOG,
    )
    add_app(parser, _add_options)
    parser.set_defaults(handler=plan_command)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--checkpoint", type=Path, metavar="DIR", help="the checkpoint of `wallaroo run`")
    add(
        "--key-groups",
        type=int,
        default=KEY_GROUPS_DEFAULT,
        metavar="N",
        help="as for `wallaroo run` (default: %(default)s)",
    )
    add("--dead-letters", type=Path, metavar="PATH", help="as for `wallaroo run`")
    add("--json", action="store_true", help="print one JSON object")


def plan_command(arguments: argparse.Namespace) -> int:
    """Print the verdict and its reasons; return the exit code."""
    options, application_args = _parse(arguments)
    application: Application = load_application(options.app, application_args)
    if options.dead_letters is not None:
        application = application.with_dead_letters(FileSinkConfig(options.dead_letters))
    application.check_dead_letters()
    finding = look(options.checkpoint, replace(application.plan, key_groups=options.key_groups))
    print(
        json.dumps(_facts(options.checkpoint, finding))
        if options.json
        else _text(options.checkpoint, finding)
    )
    return INCOMPATIBLE if finding.comparison.verdict is Verdict.INCOMPATIBLE else COMPATIBLE


def _parse(arguments: argparse.Namespace) -> tuple[argparse.Namespace, list[str]]:
    """Split the arguments after APP into this command's options and the application's."""
    own = trailing_parser("plan", arguments.app, _add_options)
    options, application_args = split_args(own, arguments)
    if options.checkpoint is None:
        own.error(
            "--checkpoint DIR is missing: with which checkpoint is the application to be compared?"
        )
    return options, application_args


def _text(checkpoint: Path, finding: Finding) -> str:
    at = f", commit {finding.commit}" if finding.commit is not None else ""
    lines = [f"checkpoint {checkpoint}{at}: {finding.comparison.verdict.value}"]
    lines += [f"  - {reason}" for reason in finding.comparison.reasons]
    if finding.comparison.verdict is Verdict.INCOMPATIBLE:
        lines.append(
            f"A run would refuse. Run the application it was made with, or give this one a folder "
            f"of its own; {way_on(finding)}."
        )
    return "\n".join(lines)


def _facts(checkpoint: Path, finding: Finding) -> dict[str, Any]:
    return {
        "checkpoint": str(checkpoint),
        "commit": finding.commit,
        "verdict": finding.comparison.verdict.value,
        "reasons": list(finding.comparison.reasons),
        "can_drop": finding.can_drop,
        "dropped_states": sorted(finding.dropped),
    }
