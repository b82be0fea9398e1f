"""Word Count from spooled input: every word that arrives is answered with its running count.

    python -m benchmarks.engine.word_count [--words N] [--rounds N] [--durable]

The Bill of Rights, one frame per non-empty line, again and again; outputs go over TCP to a
receiver.

Where it runs: the benchmark's process is the driver.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, median, options, settings_of

RATE_WANTED = 700_000  # words a second
SOURCE = "Split and Count"
# of the text in the frames that fill the spool: its chunks are as large as the ingress makes them
REPEATS = 500


def main() -> int:
    """Measure and report."""
    args = _options()
    loads.prepare()
    report = Report("word_count", settings_of(args))
    words: list[float] = []
    lines: list[float] = []
    with loads.scratch(args.scratch) as folder, runs.spark(folder) as session:
        for number in range(args.rounds):
            root = folder / f"checkpoint-{number}" if args.durable else None
            steady = _round(session, root, args.words)
            words.append(steady.outputs / steady.seconds)
            lines.append(steady.events / steady.seconds)
            print(f"round {number + 1}: {median(words):,.0f} words/s", flush=True)
    report.add("words, each with an output; median", median(words), "words/s", at_least=RATE_WANTED)
    report.add("lines, median", median(lines), "lines/s")
    report.notes.append(
        f"{args.rounds} rounds, {'with' if args.durable else 'without'} a checkpoint"
    )
    return report.finish(args.json)


def _options() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument(
        "--words", type=int, default=8_000_000, help="per round (default %(default)d)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)d")
    parser.add_argument("--durable", action="store_true", help="with a checkpoint")
    return parser.parse_args()


def _round(session: SparkSession, checkpoint: Path | None, words: int) -> runs.Batch:
    """The steady batches of one run, together."""
    text = (loads.EXAMPLES / "word_count" / "bill_of_rights.txt").read_bytes()
    lines = [line for line in text.split(b"\n") if line]
    frames = loads.Frames.of_payloads(lines * REPEATS)
    events = words * len(lines) // len(text.split())
    with loads.receiver() as port:
        run = runs.new_run(
            _application(port),
            session,
            checkpoint,
            backlog_bytes_max=runs.ANY_BACKLOG,
        )
        loads.fill_spool(run.root, SOURCE, frames, events)
        with runs.started(run):
            batches = runs.follow(run, runs.until_done(events))
    return runs.steady(batches)


def _application(out_port: int) -> Any:
    import word_count as example  # found by loads.prepare()

    return example.application_setup(
        ["--in", f"{SOURCE}@{loads.HOST}:0", "--out", f"{loads.HOST}:{out_port}"]
    )


if __name__ == "__main__":
    sys.exit(main())
