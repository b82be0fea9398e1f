"""``wallaroo plan APP --checkpoint DIR``: comparison with a checkpoint.

It reports whether the application may resume from that checkpoint, and if not, why.

Neither Spark nor Java is started; nothing is locked and nothing is written, so a run may hold the
checkpoint.

The exit code is 0 if a run would resume, 1 if it would be refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from wallaroo.api.application import Application
from wallaroo.checkpoints.inspection.compatibility import PlanFinding, look, way_on
from wallaroo.checkpoints.inspection.trial import Trial, try_rows, try_state
from wallaroo.cli.application.arguments import EPILOG, add_app, split_args, trailing_parser
from wallaroo.cli.application.checkpoints import checkpoint_here
from wallaroo.cli.application.loading import load_application
from wallaroo.cli.terminal.formatting import counted
from wallaroo.cli.terminal.parser import whole
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.dataflow.plan.json import Verdict
from wallaroo.dataflow.plan.model import KEY_GROUPS_DEFAULT
from wallaroo.state.store.stored_checkpoint import place_of

COMPATIBLE = 0
INCOMPATIBLE = 1


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "plan",
        help="compare an application with a checkpoint",
        description=(
            "Report whether an application can continue from a checkpoint, and if not, why. "
            "Nothing is run or changed."
        ),
        epilog=EPILOG,
    )
    add_app(parser, _add_options)
    parser.set_defaults(handler=plan_command)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--checkpoint",
        type=checkpoint_here,
        metavar="DIR",
        help="the checkpoint of `wallaroo run`",
    )
    add(
        "--key-groups",
        type=whole(1),
        default=KEY_GROUPS_DEFAULT,
        metavar="N",
        help="as for `wallaroo run` (default: %(default)s)",
    )
    add("--dead-letters", type=Path, metavar="PATH", help="as for `wallaroo run`")
    add(
        "--try-upgrade",
        action="store_true",
        help="read every stored state object with the application's classes; write nothing",
    )
    add("--json", action="store_true", help="print one JSON object")


def plan_command(arguments: argparse.Namespace) -> int:
    """Print the verdict and its reasons; return the exit code."""
    options, application_args = _parse(arguments)
    application: Application = load_application(options.app, application_args)
    if options.dead_letters is not None:
        application = application.with_dead_letters(FileSinkConfig(options.dead_letters))
    application.check_dead_letters()
    finding = look(options.checkpoint, replace(application.plan, key_groups=options.key_groups))
    is_tried = options.try_upgrade and finding.commit is not None
    trials = _trials(options.checkpoint, finding) if is_tried else []
    print(
        json.dumps(_facts(options.checkpoint, finding, trials if is_tried else None))
        if options.json
        else "\n".join((_text(options.checkpoint, finding), *map(_trial_text, trials)))
    )
    is_refused = finding.comparison.verdict is Verdict.INCOMPATIBLE
    has_failed = any(trial.failed for trial in trials)
    return INCOMPATIBLE if is_refused or has_failed else COMPATIBLE


def _trials(checkpoint: Path, finding: PlanFinding) -> list[Trial]:
    """Try the stored objects of all steps whose state is not refused."""
    trials = [*try_state(checkpoint, finding.plan, _progress), *try_rows(checkpoint, finding.plan)]
    return [trial for trial in trials if trial.step not in finding.dropped]


def _progress(count: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{count:,} objects tried", end="", file=sys.stderr, flush=True)


def _parse(arguments: argparse.Namespace) -> tuple[argparse.Namespace, list[str]]:
    """Split the arguments after APP into this command's options and the application's."""
    own = trailing_parser("plan", arguments.app, _add_options)
    options, application_args = split_args(own, arguments)
    if options.checkpoint is None:
        own.error("--checkpoint DIR is missing: name the checkpoint to compare with.")
    return options, application_args


def _text(checkpoint: Path, finding: PlanFinding) -> str:
    at = f", commit {finding.commit}" if finding.commit is not None else ""
    lines = [f"checkpoint {place_of(checkpoint)}{at}: {finding.comparison.verdict.value}"]
    lines += [f"  - {reason}" for reason in finding.comparison.reasons]
    if finding.comparison.verdict is Verdict.INCOMPATIBLE:
        lines.append(
            f"A run would refuse. Run the application it was made with, or give this one a folder "
            f"of its own; {way_on(finding)}."
        )
    for step, attributes in finding.fates.items():
        lines.append(f"  stored objects of step '{step}':")
        lines += [f"    {fate.attribute}: {fate.what}" for fate in attributes]
    return "\n".join(lines)


def _trial_text(trial: Trial) -> str:
    counts = (
        (trial.as_stored, "read as stored"),
        (trial.filled, "filled in"),
        (trial.upgraded, "upgraded"),
        (trial.failed, "failed"),
    )
    text = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    objects = counted(trial.objects, "object", "objects")
    lines = [f"tried step '{trial.step}': {objects}{': ' if text else ''}{text}"]
    lines += [f"  - {error}" for error in trial.errors]
    return "\n".join(lines)


def _facts(checkpoint: Path, finding: PlanFinding, trials: list[Trial] | None) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "checkpoint": place_of(checkpoint),
        "commit": finding.commit,
        "verdict": finding.comparison.verdict.value,
        "reasons": list(finding.comparison.reasons),
        "can_drop": finding.can_drop,
        "dropped_states": sorted(finding.dropped),
        "attributes": {
            step: {fate.attribute: fate.what for fate in attributes}
            for step, attributes in finding.fates.items()
        },
    }
    if trials is not None:
        facts["tried"] = [asdict(trial) for trial in trials]
    return facts
