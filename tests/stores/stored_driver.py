"""A program that counts events by key, with its checkpoint in an object store or a folder.

``stored_driver.py FOLDER PLACE [--take-over] [--fresh] [--from-savepoint=PLACE] [--fork]
[--out=NAME]``: reads ``FOLDER/in.txt`` to its end and appends to ``FOLDER/out.txt``, or the file
named, which knows the commits that it holds; the cache is where ``WALLAROO_CACHE`` says.  Events
from the number in the file ``STORED_LIMIT`` on wait until that number is raised.  The exit code is
that of ``wallaroo run``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import wallaroo
from wallaroo.cli.main import exit_code
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run
from wallaroo.sinks import SinkConfig, SQLiteSinkConfig

KEYS = 7
LIMIT = Path(os.environ["STORED_LIMIT"]) if "STORED_LIMIT" in os.environ else None


class Count:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    event = payload.decode()
    while LIMIT is not None and int(event) >= int(LIMIT.read_text()):
        time.sleep(0.01)
    return event


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


def raise_limit(limit: Path, upto: int) -> None:
    """Let a program with this ``STORED_LIMIT`` process so many events."""
    new = limit.with_suffix(".new")
    new.write_text(f"{upto}")
    new.rename(limit)


def application(folder: Path, out: str = "out.txt", database: str = "") -> wallaroo.Application:
    """Build the application; with a database, it writes into the table ``lines`` there."""
    source = wallaroo.source("in", wallaroo.FileSourceConfig("in", str(folder / "in.txt"), decode))
    sink: SinkConfig = wallaroo.FileSinkConfig(folder / out, encode, name="file")
    if database:
        row = wallaroo.encoder(lambda line: (line,))
        sink = SQLiteSinkConfig(database, "lines", ("line",), row)
    return wallaroo.build_application("stored", source.key_by(key_of).to(count).to_sink(sink))


def new_run(folder: Path, url: str, *options: str) -> Run:
    """Return the run, with few events in a batch."""
    values = dict(option.split("=", 1) for option in options if "=" in option)
    tuning = Tuning(
        pace=Pace(events_first=100, events_max=100),
        mark_bytes=400,
        snapshot_every=4,
        sweep_every=2,
        image_every=int(values.get("--image-every", "4")),
        owner_check_s=0.2,
    )
    chosen = RunOptions(
        checkpoint=url,
        status_address=None,
        key_groups=4,
        retain_commits=3,
        batch_time_s=0.05,
        is_taking_over="--take-over" in options,
        is_fresh="--fresh" in options,
        from_savepoint=values.get("--from-savepoint"),
        is_fork="--fork" in options,
        tuning=tuning,
    )
    pause_s = float(os.environ.get("STORED_PAUSE_S", "0"))
    program = application(folder, values.get("--out", "out.txt"), values.get("--database", ""))
    return Run(program, chosen, InProcessHost(2, pause_s))


def main(folder: str, url: str, *options: str) -> int:
    """Run until the input is processed; return the exit code."""
    run = new_run(Path(folder), url, *options)
    run.begin()
    while not run.wait(1.0):
        pass
    if run.exception is None:
        return 0
    print(run.exception, flush=True)
    return exit_code(run.exception)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
