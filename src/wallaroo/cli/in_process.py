"""``python -m wallaroo.cli.in_process``: ``wallaroo run`` without Spark.

Where it runs: driver, started by ``wallaroo verify --host in-process``.  Batches run in the
driver's own process.

Ingress, egress, spools, state, sinks, commit protocol and recovery are those of every run, and pass
the same fault points; a start takes a second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from wallaroo.api.application import Application
from wallaroo.cli.main import build_parser, run_command
from wallaroo.cli.run.arguments import run_options
from wallaroo.cli.run.command import run_with
from wallaroo.options import RunHandle
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

TASKS = 2
PAUSE_S = 0.1  # between two batches: otherwise every message would be a batch of its own


def main(arguments: Sequence[str]) -> int:
    """Run with these arguments of ``wallaroo run``; return the exit code."""
    options = build_parser().parse_args(["run", *arguments])
    options.handler = _run
    return run_command(options, arguments)


def _run(arguments: argparse.Namespace) -> int:
    return run_with(_start, arguments)


def _start(application: Application, options: argparse.Namespace) -> RunHandle:
    run = Run(application, run_options(options), InProcessHost(TASKS, PAUSE_S))
    run.begin()
    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
