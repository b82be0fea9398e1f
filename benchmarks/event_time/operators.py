"""What time costs per event: whole tasks, from the frames of a spool to what windows, timers and
joins make of them.

    python -m benchmarks.event_time.operators [--events N] [--rounds N]
        [--profile CASE] [--only TEXT]

Each case is an application.  Its batches run in this process, one task per level, with the levels,
the blocks and the stored entries of a run: decoding, event times, the shuffle, the operator, and
what is packed at a batch's end.  Beside them: a bare Python loop that decodes the same frames and
counts in a dict, the same pipeline without time, and pandas, polars and DuckDB, which group or join
the same frames, a batch at a time.  All take turns; microseconds of processor time per event,
medians of the rounds.

Events are 18 bytes (key, time in nanoseconds, value) of 1,000 keys, 1 % up to a second out of
order, 100,000 for a second of event time.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import wallaroo
from benchmarks.event_time.joins_elsewhere import (
    as_of_with_pandas,
    within_with_duckdb,
    within_with_pandas,
    within_with_polars,
)
from wallaroo.aggregations import Count, Max, Sum, combine_of
from wallaroo.testing.local_runner.runner import Input, LocalRunner

SECOND = wallaroo.seconds(1)
KEYS = 1000
BATCH = 50_000
CHUNK = 2_500  # events
LAYOUT = struct.Struct(">Hqd")
FRAME = struct.Struct(f">I{LAYOUT.size}s")
PER_SECOND = 100_000
NEAR = SECOND // 50  # of a key, so many nanoseconds around a row are two rows of the other side

Event = tuple[int, int, float]
unpack = LAYOUT.unpack


class Seen:
    """A key's state."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.decoder(pure=True)
def decode(payload: bytes) -> Event:
    return unpack(payload)


def time_of(event: Event) -> int:
    return event[1]


@wallaroo.key_extractor
def key_of(event: Event) -> int:
    return event[0]


@wallaroo.encoder
def encode(output: Any) -> bytes:
    return b"%d" % output


@wallaroo.state_computation(name="count", state=Seen)
def count(event: Event, seen: Seen) -> int | None:
    seen.count += 1
    return seen.count if not seen.count % 100 else None


@wallaroo.state_computation(name="silence", state=Seen)
def silence(event: Event, seen: Seen, context: wallaroo.Context) -> None:
    seen.count += 1
    context.set_timer("silent", event[1] + SECOND)


@silence.on_timer
def is_silent(seen: Seen, context: wallaroo.Context, name: str) -> int:
    return seen.count


@wallaroo.state_computation(name="expires", state=Seen, ttl=10 * SECOND, ttl_time="event")
def expires(event: Event, seen: Seen) -> int | None:
    seen.count += 1
    return seen.count if not seen.count % 100 else None


ROW = np.dtype([("key", ">u2"), ("at", ">i8"), ("value", ">f8")])
decode_rows = wallaroo.fixed_layout(ROW)


@wallaroo.batch_key_extractor
def keys_of(rows: NDArray[Any]) -> NDArray[Any]:
    return rows["key"]


@wallaroo.batch_encoder
def encode_rows(rows: pa.RecordBatch) -> list[bytes]:
    return [b"%d" % key for key in rows.column("key").to_pylist()]


def value_of(event: Event) -> float:
    return event[2]


def events_in(found: dict[str, Any]) -> int:
    return int(found["n"])


def priced(order: Event, quote: Event | None) -> int:
    return order[0]


def source(name: str = "in") -> wallaroo.Pipeline[Event]:
    port = "7010" if name == "in" else "7012"
    return wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode))


def timed(name: str = "in") -> wallaroo.KeyedPipeline[int, Event]:
    return (
        source(name).with_event_time(time_of, delay=SECOND, allow_before_1980=True).key_by(key_of)
    )


def source_of_rows(name: str = "in") -> wallaroo.Pipeline[Any]:
    port = "7010" if name == "in" else "7012"
    return wallaroo.source(name, wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode_rows))


def timed_rows() -> wallaroo.KeyedPipeline[int, Any]:
    rows = source_of_rows()
    return rows.with_event_time("at", delay=SECOND, allow_before_1980=True).key_by(keys_of)


def summed(keyed: Any, of: Any) -> Any:
    """Three aggregations over windows of a second."""
    summary = combine_of(n=Count(), total=Sum(of), most=Max(of))
    return keyed.to(wallaroo.range_windows(SECOND).over(summary)).map(events_in)


def quoted_rows() -> wallaroo.KeyedPipeline[int, Any]:
    quotes = source_of_rows("quotes").with_event_time("at", delay=SECOND, allow_before_1980=True)
    return quotes.key_by(keys_of)


PRICE = wallaroo.with_columns(price="value", quoted_at="at")


def near(order: Event, quote: Event) -> int:
    return order[0]


def application(pipeline: Any, name: str = "") -> wallaroo.Application:
    encoder = encode_rows if name.endswith("join, rows") else encode
    sink = wallaroo.TCPSinkConfig("127.0.0.1", "7011", encoder)
    return wallaroo.build_application("timed", pipeline.to_sink(sink))


SLIDING = wallaroo.range_windows(10 * SECOND).with_slide(SECOND)
BUILDS: dict[str, Callable[[], Any]] = {
    "state, without time": lambda: source().key_by(key_of).to(count),
    "state, with event time": lambda: timed().to(count),
    "tumbling 1 s": lambda: timed().to(wallaroo.range_windows(SECOND).over(Count())),
    "three sums in 1 s": lambda: summed(timed(), value_of),
    "three sums in 1 s, rows": lambda: summed(timed_rows(), "value"),
    "sliding 10 s by 1 s": lambda: timed().to(SLIDING.over(Count())),
    "sessions of 1 s": lambda: timed().to(wallaroo.session_windows(SECOND).over(Count())),
    "a timer per event": lambda: timed().to(silence),
    "state that expires": lambda: timed().to(expires),
    "as-of join": lambda: timed().join_latest(timed("quotes"), priced),
    "as-of join, rows": lambda: timed_rows().join_latest(quoted_rows(), PRICE),
    "interval join": lambda: timed().join(timed("quotes"), near, within=NEAR),
    "interval join, rows": lambda: timed_rows().join(quoted_rows(), PRICE, within=NEAR),
}


def batches_of(events: int) -> list[list[bytes]]:
    """Batches of chunks of frames."""
    chance = random.Random(7)
    frames = []
    for number in range(events):
        at = number * SECOND // PER_SECOND
        if chance.random() < 0.01:
            at -= chance.randrange(SECOND)
        payload = LAYOUT.pack(chance.randrange(KEYS), at, number)
        frames.append(FRAME.pack(LAYOUT.size, payload))
    chunks = [b"".join(frames[at : at + CHUNK]) for at in range(0, events, CHUNK)]
    step = BATCH // CHUNK
    return [chunks[at : at + step] for at in range(0, len(chunks), step)]


def bare(batches: list[list[bytes]]) -> None:
    """Decode, and count by key and second."""
    counts: dict[tuple[int, int], int] = {}
    for chunks in batches:
        for frames in chunks:
            for at in range(4, len(frames), FRAME.size):
                key, at_ns, _ = unpack(frames[at : at + LAYOUT.size])
                place = key, at_ns // SECOND
                counts[place] = counts.get(place, 0) + 1


def with_pandas(batches: list[list[bytes]]) -> None:
    """Group by key and second."""
    framed = np.dtype([("length", ">u4"), *ROW.descr])
    for chunks in batches:
        rows = np.frombuffer(b"".join(chunks), framed)
        frame = pd.DataFrame(
            {
                name: rows[name].astype(rows.dtype[name].newbyteorder("="))
                for name in ROW.names or ()
            }
        )
        grouped = frame["value"].groupby([frame["key"], frame["at"] // SECOND])
        grouped.agg(["count", "sum", "max"])


def run(built: wallaroo.Application, batches: list[list[bytes]]) -> None:
    """Run all batches; events of two sources come in turns."""
    runner = LocalRunner(built.plan)
    sources = len(built.plan.sources)
    for chunks in batches:
        inputs = [Input(number % sources, frames, 1) for number, frames in enumerate(chunks)]
        runner.commit(runner.run_batch([inputs], 1, clock_ns=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", metavar="CASE", help="profile one case instead")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their name")
    options = parser.parse_args()
    batches = batches_of(options.events)
    applications = {name: application(build(), name) for name, build in BUILDS.items()}
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(run, applications[options.profile], batches)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    cases: dict[str, Callable[[], None]] = {
        "bare loop, counts": lambda: bare(batches),
        "pandas, three sums": lambda: with_pandas(batches),
        "pandas, as-of join": lambda: as_of_with_pandas(batches),
        "pandas, interval join": lambda: within_with_pandas(batches, NEAR),
        "polars, interval join": lambda: within_with_polars(batches, NEAR),
        "DuckDB, interval join": lambda: within_with_duckdb(batches, NEAR),
    }
    for name, built in applications.items():
        cases[name] = lambda built=built: run(built, batches)  # type: ignore[misc]
    cases = {name: each for name, each in cases.items() if options.only in name}
    found: dict[str, list[float]] = {name: [] for name in cases}
    gc.disable()
    for _ in range(options.rounds):
        for name, case in cases.items():
            gc.collect()
            began = time.process_time()
            case()
            found[name].append((time.process_time() - began) / options.events * 1e6)
    loop = statistics.median(found.get("bare loop, counts") or [float("nan")])
    for name, took in found.items():
        median = statistics.median(took)
        print(f"{name:24} {median:7.2f} us/event  {median / loop:5.2f} times the loop")


if __name__ == "__main__":
    main()
