"""Where the CPU time of an event goes, step by step, beside the bare loop over the same functions.

    python -m benchmarks.engine.event_steps [--rounds N]

What a run does per event is done here by the very code of the product, one part after the other in
one process, without Spark and without sockets: read from the spool, split, level 0, pack, pass on,
unpack, level 1, write what changed.  Levels are measured as a whole; within them, what the user's
functions and our parts take by themselves is shown for orientation (by itself everything is a
little quicker).  Every round takes all parts and the bare loop in turn; a figure is the median.

Where it runs: the benchmark's process.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.engine import bare_loop
from benchmarks.lib import loads, runs
from benchmarks.lib.machine import Report, median, options, settings_of
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.blocks import Block, in_order
from wallaroo.engine.blocks.packing import (
    FRAMES,
    PICKLED,
    Kind,
    pack,
)
from wallaroo.engine.levels.level import Level
from wallaroo.engine.levels.side_outputs import Committed
from wallaroo.protocols.framing import Framing, frame_splitter
from wallaroo.runtime.tasks.level_driver import drain, feed_blocks
from wallaroo.sources.spooled import SpoolLog
from wallaroo.spool.format import folder_of

TASKS = 2
SHARE_WANTED = 0.55
Timed = tuple[str, float]  # part, CPU seconds


def main() -> int:
    """Measure and report."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="default %(default)d")
    args = parser.parse_args()
    loads.prepare()
    report = Report("event_steps", settings_of(args))
    with loads.scratch(args.scratch) as folder:
        for workload, application in (
            (bare_loop.market_spread(), runs.market_spread),
            (bare_loop.word_count(), runs.word_count),
        ):
            plan: Plan = application(1).plan
            parts = Parts(plan, workload, folder / workload.name)
            rounds = [_round(parts, workload) for _ in range(args.rounds)]
            _conclude(report, workload.name, rounds)
    return report.finish(args.json)


def _round(parts: Parts, workload: bare_loop.Workload) -> dict[str, float]:
    """One round: microseconds per event, by part."""
    gc.collect()
    gc.disable()
    try:
        took = {name: seconds / parts.events * 1e6 for name, seconds in parts.run()}
    finally:
        gc.enable()
    return {"bare loop": bare_loop.bare_us(workload), **took}


WHOLE = ("spool: read", "level 0", "packed bytes passed on", "level 1", "state: what changed")


class Parts:
    """The parts of a run, on input that is spooled once."""

    def __init__(self, plan: Plan, workload: bare_loop.Workload, root: Path):
        self._plan = plan
        self._workload = workload
        self._state: dict[str, dict[Any, Any]] = {}
        self._batch = 0
        self._logs = []
        for source in workload.inputs:
            loads.fill_spool(root, source.source, source.frames, source.frames.events)
            self._logs.append(SpoolLog(source.source, folder_of(root / "spool", source.source), ""))
        frames = sum(source.frames.events for source in workload.inputs)
        self.events = frames if workload.split is None else self._words()

    def _words(self) -> int:
        (source,) = self._workload.inputs
        split = self._workload.split
        assert split is not None
        return sum(
            len(split(source.decode(payload))) for run in source.payloads() for payload in run
        )

    def run(self) -> Iterator[Timed]:
        """Do everything once."""
        chunks, seconds = timed(self._read)
        yield "spool: read", seconds
        payloads, seconds = timed(lambda: _split(chunks))
        yield "  of level 0: frames split", seconds
        yield "  of level 0: decoders, once", timed(lambda: self._decode(payloads))[1]
        given, seconds = timed(lambda: self._level_0(chunks))
        yield "level 0", seconds
        blocks = [block for _, block in given]
        unpacked, seconds = timed(lambda: [_unpacked(block) for block in blocks])
        yield "  of level 1: unpacking", seconds
        yield "  of level 0: packing", timed(lambda: [_packed(*each) for each in unpacked])[1]
        arrived, seconds = timed(lambda: pickle.loads(pickle.dumps(given, 5)))
        yield "packed bytes passed on", seconds
        levels, seconds = timed(lambda: self._level_1(arrived))
        yield "level 1", seconds
        yield "state: what changed", timed(lambda: self._changes(levels))[1]
        self._batch += 1

    def _read(self) -> list[tuple[int, bytes]]:
        chunks = []
        for source, log in enumerate(self._logs):
            ((part,),) = log.split(log.beginning(), log.head().position, 1)
            chunks += [(source, records.frames) for records in log.read(part)]
        return chunks

    def _decode(self, payloads: list[tuple[int, list[bytes]]]) -> None:
        for source, run in payloads:
            decode = self._workload.inputs[source].decode
            for payload in run:
                decode(payload)

    def _level(self, number: int, task: int) -> Level:
        def reader(step: str) -> Callable[[Any], Any]:
            return self._state.setdefault(step, {}).get

        return Level(self._plan, number, task, TASKS, Committed(reader), self._batch)

    def _level_0(self, chunks: list[tuple[int, bytes]]) -> list[tuple[int, Block]]:
        given: list[tuple[int, Block]] = []
        for task in range(TASKS):
            level = self._level(0, task)

            def feeding(level: Level = level, task: int = task) -> Iterator[None]:
                for source, frames in chunks[task::TASKS]:
                    level.feed_frames(source, frames, 1)
                    yield None

            given += drain(level, feeding(), lambda: None)
        return given

    def _level_1(self, given: list[tuple[int, Block]]) -> list[Level]:
        levels = []
        for task in range(TASKS):
            level = self._level(1, task)
            own = in_order(block for owner, block in given if owner == task)

            def take(level: Level = level) -> None:
                for outputs in level.effects.outputs.values():
                    outputs.clear()

            for _ in drain(level, feed_blocks(level, self._plan, 1, task, own), take):
                raise AssertionError("level 1 is the last one")
            levels.append(level)
        return levels

    def _changes(self, levels: list[Level]) -> None:
        for level in levels:
            for step, state in level.effects.states.items():
                self._state.setdefault(step, {}).update(state.changes())


def timed(part: Callable[[], Any]) -> tuple[Any, float]:
    """What a part returns, and the CPU time that it took."""
    began = time.process_time()
    made = part()
    return made, time.process_time() - began


def _split(chunks: list[tuple[int, bytes]]) -> list[tuple[int, list[bytes]]]:
    split = frame_splitter(Framing())
    return [(source, split(frames)) for source, frames in chunks]


def _unpacked(block: Block) -> tuple[Kind, list[Any], list[Any]]:
    packing = FRAMES if block.kind is Kind.FRAMES else PICKLED
    return block.kind, *packing.unpack(block.packed)


def _packed(kind: Kind, keys: list[Any], values: list[Any]) -> bytes:
    column = (FRAMES if kind is Kind.FRAMES else PICKLED).column()
    for value in values:
        column.atoms.append(value)
    return pack(keys, column, False)


def _conclude(report: Report, name: str, rounds: list[dict[str, float]]) -> None:
    for part in rounds[0]:
        report.add(f"{name}: {part}", median(each[part] for each in rounds), "us")
    totals = [sum(each[part] for part in WHOLE) for each in rounds]
    report.add(f"{name}: all of it", median(totals), "us")
    ratios = [total / each["bare loop"] for total, each in zip(totals, rounds, strict=True)]
    report.add(f"{name}: all of it / bare loop", median(ratios), "", at_most=1 / SHARE_WANTED)


if __name__ == "__main__":
    sys.exit(main())
