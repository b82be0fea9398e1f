"""A program that counts events by key, whose checkpoint may have a copy on a second host.

``replicated_driver.py FOLDER CHECKPOINT PORT [--replica=HOST:PORT --key=FILE] [--take-over]
[--standby]``: listens at PORT for senders with acknowledgements, and at a port of its own for
others; appends to ``FOLDER/out.txt``, which knows the commits that it holds.  The exit code is that
of ``wallaroo run``.  It runs until it is stopped.
"""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path

import wallaroo
from wallaroo.api.application import Application
from wallaroo.cli.main import exit_code
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

KEYS = 7
SOURCE = "in"


class Count:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.key_extractor
def key_of(event: str) -> str:
    return f"key{int(event) % KEYS}"


@wallaroo.state_computation(name="count", state=Count)
def count(event: str, state: Count) -> str:
    state.count += 1
    return f"{event} {state.count}"


@wallaroo.encoder
def encode(answer: str) -> bytes:
    return f"{answer}\n".encode()


def expected(events: int) -> list[str]:
    """Return the lines of the output, in no order across keys."""
    return sorted(f"{number} {number // KEYS + 1}" for number in range(events))


def application_of(sink: wallaroo.FileSinkConfig | wallaroo.TCPSinkConfig) -> Application:
    """Return the application with a sink."""
    source = wallaroo.source(SOURCE, wallaroo.TCPSourceConfig(SOURCE, "127.0.0.1", 0, decode))
    return wallaroo.build_application("replicated", source.key_by(key_of).to(count).to_sink(sink))


def application_setup(args: list[str]) -> Application:
    """Build it for `wallaroo run`, with a receiver that resumes: --out HOST:PORT."""
    host, _, port = args[args.index("--out") + 1].rpartition(":")
    return application_of(wallaroo.TCPSinkConfig(host, port, encode, resume=True, name="out"))


def new_run(folder: Path, checkpoint: Path, port: int, *options: str) -> Run:
    """Return the run, with few events in a batch."""
    application = application_of(wallaroo.FileSinkConfig(folder / "out.txt", encode, name="file"))
    tuning = Tuning(pace=Pace(events_first=20, events_max=20), snapshot_every=4, sweep_every=2)
    values = dict(option.split("=", 1) for option in options if "=" in option)
    host, _, replica_port = values.get("--replica", "").rpartition(":")
    chosen = RunOptions(
        checkpoint=checkpoint,
        status_address=None,
        key_groups=4,
        retain_commits=3,
        batch_time_s=0.05,
        durability="replicated" if host else "disk",
        replica=(host, int(replica_port)) if host else None,
        replica_key=values.get("--key"),
        is_taking_over="--take-over" in options,
        standby_after_s=1.0 if "--standby" in options else None,
        ack_ports=((SOURCE, port),),
        tuning=tuning,
    )
    return Run(application, chosen, InProcessHost())


def main(folder: str, checkpoint: str, port: str, *options: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run = new_run(Path(folder), Path(checkpoint), int(port), *options)
    signal.signal(signal.SIGTERM, lambda *_: run.stop())
    run.begin()
    while not run.wait(0.1):
        pass
    if run.exception is not None:
        print(run.exception, flush=True)
        return exit_code(run.exception)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
