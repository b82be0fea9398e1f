"""A run in one process that another one may take over: a count per key, from TCP to files."""

from __future__ import annotations

import os
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


class Count:
    """How many events of a key came."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    return payload.decode()


class Numbers:
    """Some events of seven keys at once, then one after another."""

    def initial_value(self) -> str:
        return "key0 0"

    def apply(self, event: str) -> str:
        number = int(event.split(" ")[1]) + 1
        if number > NUMBERS:
            time.sleep(PAUSE_S)  # the run does not end by itself
        return f"key{number % 7} {number}"


@wallaroo.key_extractor
def key_of(event: str) -> str:
    return event.split(" ")[0]


@wallaroo.state_computation(name="count", state=Count)
def count(event: str, state: Count) -> str:
    state.count += 1
    return f"{event} {state.count}"


@wallaroo.encoder
def encode(answer: str) -> bytes:
    return f"{answer}\n".encode()


def main(root: str, host: str, plain: str, acknowledged: str, *options: str) -> int:
    """Run until the run ends; return the exit code of ``wallaroo run``."""
    folder = Path(root)
    is_numbers = "--numbers" in options
    config: wallaroo.SourceConfig[str] = (
        wallaroo.GenSourceConfig("Events", Numbers())
        if is_numbers
        else wallaroo.TCPSourceConfig("Events", "127.0.0.1", int(plain), decode)
    )
    source = wallaroo.source("Events", config)
    sinks = [
        wallaroo.FileSinkConfig(folder / "out.txt", encode, name="file"),
        wallaroo.FileSinkConfig(folder / "parts", encode, name="parts"),
    ]
    application = wallaroo.build_application(
        "owned", source.key_by(key_of).to(count).to_sinks(sinks)
    )
    chosen = RunOptions(
        checkpoint=folder / "state",
        host=host,  # type: ignore[arg-type]  # its name
        ack_ports=() if is_numbers else (("Events", int(acknowledged)),),
        is_taking_over="--take-over" in options,
        standby_after_s=STANDBY_AFTER_S if "--standby" in options else None,
    )
    run = Run(application, chosen, InProcessHost(1))
    run.begin()
    signal.signal(signal.SIGTERM, lambda number, frame: run.stop())
    while not run.wait(0.1):
        if run.status().standby is not None:
            (folder / f"standby-{os.getpid()}").touch()
    if run.exception is None:
        return 0
    print(run.exception, flush=True)
    return exit_code(run.exception)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
