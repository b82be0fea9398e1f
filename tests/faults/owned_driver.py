"""A run in one process that another one may take over."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import time
from pathlib import Path

import wallaroo
from wallaroo.cli.main import exit_code
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

NUMBERS = 40
STANDBY_AFTER_S = 3.0
PAUSE_S = 0.02  # between numbers after them


class Numbers:
    """Some events of seven keys at once, then one after another."""

    def initial_value(self) -> str:
        return "key0 0"

    def apply(self, event: str) -> str:
        number = int(event.split(" ")[1]) + 1
        if number > NUMBERS:
            time.sleep(PAUSE_S)  # the run does not end by itself
        return f"key{number % 7} {number}"


def main(root: str, host: str, plain: str, acknowledged: str, *options: str) -> int:
    """Run until the run ends; return the exit code of ``wallaroo run``."""
    folder = Path(root)
    is_numbers = "--numbers" in options
    sys.path.insert(0, str(Path(__file__).parent))
    module = importlib.import_module("owned_application")  # the name that `wallaroo run` gives it
    config: wallaroo.SourceConfig[str] = (
        wallaroo.GenSourceConfig("Events", Numbers()) if is_numbers else module.from_tcp(int(plain))
    )
    application = module.counted(folder, config)
    named = dict(option.split("=", 1) for option in options if "=" in option)
    chosen = RunOptions(
        checkpoint=named.get("--checkpoint", folder / "state"),
        from_savepoint=named.get("--from-savepoint"),
        is_fork="--fork" in options,
        host=host,  # type: ignore[arg-type]  # its name
        ack_ports=() if is_numbers else (("Events", int(acknowledged)),),
        is_taking_over="--take-over" in options,
        standby_after_s=STANDBY_AFTER_S if "--standby" in options else None,
    )
    logging.basicConfig(level=logging.INFO)
    run = Run(application, chosen, InProcessHost(1))
    run.begin()
    signal.signal(signal.SIGTERM, lambda number, frame: run.stop())
    while not run.wait(0.1):
        pass
    if run.exception is None:
        return 0
    print(run.exception, flush=True)
    return exit_code(run.exception)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
