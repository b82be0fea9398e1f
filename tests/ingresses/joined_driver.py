"""A program that numbers the events of each stream, with ingresses on other hosts.

``joined_driver.py FOLDER ACK_PORT [--join=HOST:PORT] [--tls=NAME] [--windows]``: the run's own
ingress listens at ACK_PORT for senders with acknowledgements, other ingresses join at HOST:PORT.
The checkpoint and ``out.txt`` are in FOLDER.  An event is ``STREAM NUMBER``.  With ``--windows``
the number is its time in seconds, and the output is the count of each window of ten seconds.  NAME
is that of a certificate (.pem) and its key (.key).
"""

from __future__ import annotations

import logging
import signal
import sys
from datetime import timedelta
from pathlib import Path

import wallaroo
from wallaroo.api.application import Application
from wallaroo.cli.main import exit_code
from wallaroo.instrumentation.tuning import Pace, Tuning
from wallaroo.network.tls import TLS
from wallaroo.options import RunOptions
from wallaroo.runtime.in_process import InProcessHost
from wallaroo.runtime.lifecycle.run import Run

SOURCE = "in"
BEGIN_S = 1_700_000_000.0


class Seen:
    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    return payload.decode()


@wallaroo.key_extractor
def stream_of(event: str) -> str:
    return event.partition(" ")[0]


@wallaroo.state_computation(name="number", state=Seen)
def number(event: str, state: Seen) -> str:
    state.count += 1
    return f"{event} {state.count}"


@wallaroo.encoder
def encode(answer: object) -> bytes:
    return f"{answer}\n".encode()


def time_of(event: str) -> float:
    return BEGIN_S + float(event.partition(" ")[2])


class CountWindow(wallaroo.Aggregation):
    def initial_accumulator(self) -> int:
        return 0

    def update(self, event: str, accumulator: int) -> int:
        return accumulator + 1

    def combine(self, left: int, right: int) -> int:
        return left + right

    def output(self, key: str, accumulator: int) -> str:
        return f"{key} {accumulator}"


def application_of(folder: Path, *, has_windows: bool) -> Application:
    """Return the application."""
    source = wallaroo.source(SOURCE, wallaroo.TCPSourceConfig(SOURCE, "127.0.0.1", 0, decode))
    sink = wallaroo.FileSinkConfig(folder / "out.txt", encode, name="file")
    if not has_windows:
        return wallaroo.build_application(
            "joined", source.key_by(stream_of).to(number).to_sink(sink)
        )
    timed = source.with_event_time(time_of).key_by(stream_of)
    windows = wallaroo.range_windows(timedelta(seconds=10)).over(CountWindow)
    return wallaroo.build_application("joined", timed.to(windows).to_sink(sink))


def application_setup(args: list[str]) -> Application:
    """Build it for `wallaroo run`: --folder FOLDER."""
    return application_of(Path(args[args.index("--folder") + 1]), has_windows=False)


def main(folder: str, port: str, *options: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    root = Path(folder)
    values = dict(option.split("=", 1) for option in options if "=" in option)
    host, _, join_port = values.get("--join", "").rpartition(":")
    chosen = RunOptions(
        checkpoint=root / "checkpoint",
        status_address=None,
        key_groups=4,
        retain_commits=3,
        batch_time_s=0.05,
        ack_ports=((SOURCE, int(port)),),
        ingress_listen=(host, int(join_port)) if host else None,
        tls=TLS(f"{values['--tls']}.pem", f"{values['--tls']}.key") if "--tls" in values else None,
        tuning=Tuning(pace=Pace(events_first=50, events_max=50), snapshot_every=4, sweep_every=2),
    )
    application = application_of(root, has_windows="--windows" in options)
    run = Run(application, chosen, InProcessHost())
    signal.signal(signal.SIGTERM, lambda *_: run.stop())
    run.begin()
    waited_for = ""
    while not run.wait(0.05):
        status = run.status()
        if status.waiting_for != waited_for:
            waited_for = status.waiting_for
            print(f"WAITING {waited_for}", flush=True)
    if run.exception is not None:
        print(run.exception, flush=True)
        return exit_code(run.exception)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
