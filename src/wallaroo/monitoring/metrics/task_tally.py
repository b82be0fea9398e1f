"""Counts of one task for the meters.

It counts events by stage and edge, block by block, and takes one sample of its steps' times if the
batch is sampled.

Where it runs: worker.

The sampled block rotates with the batch's number, so that in the long run first blocks, in which
keys are used for the first time, have the same weight as all others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from wallaroo.dataflow.plan.model import Plan, SourceEntry
from wallaroo.engine.blocks.blocks import Block
from wallaroo.engine.levels.level import Level
from wallaroo.engine.stages.sampling import StageSample
from wallaroo.sources.log import Records

HELD_EVERY_BATCHES = 4  # sampled batches in which exits of operators that hold events are relays
RECORDS_EVENTS = 1024  # about the size of a source's run of records when input is plenty


class TaskTally:
    """Counts of one task in one batch."""

    def __init__(self, plan: Plan, batch: int, is_sampled: bool = True):
        self.stage_events: dict[int, int] = {}
        self.edges: dict[tuple[int, int], int] = {}
        self.edge_bytes: dict[tuple[int, int], int] = {}
        self.samples: list[StageSample] = []
        self._batch = max(batch, 0)
        is_timed = is_sampled and self._batch % HELD_EVERY_BATCHES == 0
        # a level with it measures operators that hold events back, too
        self.clock = time.perf_counter_ns if is_timed else None
        self._is_sampled = is_sampled
        self._stages = {
            stage.entry.source: stage.id
            for stage in plan.stages
            if isinstance(stage.entry, SourceEntry)
        }

    def records_feeder(
        self, level: Level, events_expected: int
    ) -> Callable[[int, Records, int], int]:
        """Return a function that feeds and counts runs of records; it samples one of them."""
        countdown = self._countdown(1 + events_expected // RECORDS_EVENTS)

        def feed(source: int, records: Records, receipt_ms: int) -> int:
            nonlocal countdown
            if countdown == 0:
                count, samples = level.sample(
                    source,
                    records.frames or records.payloads,
                    receipt_ms,
                    time.perf_counter_ns,
                    records.partition,
                    records.times_ns,
                    records.origin,
                )
                self.samples += samples
            elif records.frames:
                count = level.feed_frames(
                    source,
                    records.frames,
                    receipt_ms,
                    records.partition,
                    records.times_ns,
                    records.origin,
                )
            else:
                count = level.feed_payloads(
                    source,
                    records.payloads,
                    receipt_ms,
                    records.partition,
                    records.times_ns,
                    records.origin,
                )
            countdown -= 1
            stage = self._stages[source]
            self.stage_events[stage] = self.stage_events.get(stage, 0) + count
            return count

        return feed

    def block_feeder(self, level: Level, blocks: int) -> Callable[[Block], None]:
        """Return a ``level.feed_block`` that counts blocks and samples one."""
        countdown = self._countdown(max(1, blocks))

        def feed(block: Block) -> None:
            nonlocal countdown
            if countdown == 0:
                self.samples += level.sample_block(block, time.perf_counter_ns)
            else:
                level.feed_block(block)
            countdown -= 1
            self.stage_events[block.stage] = self.stage_events.get(block.stage, 0) + block.events

        return feed

    def samples_of(self, level: Level) -> tuple[StageSample, ...]:
        """Return all samples; those of the batch's end are of all events of their stages."""
        ends = (
            replace(sample, events=self.stage_events.get(sample.head, 0))
            for sample in level.end_samples
        )
        return (*self.samples, *ends)

    def _countdown(self, runs: int) -> int:
        """Return how many runs or blocks come before the one that is sampled."""
        return self._batch % runs if self._is_sampled else -1

    def leaving(self, blocks: Iterator[tuple[int, Block]]) -> Iterator[tuple[int, Block]]:
        """Count blocks on their way into the shuffle."""
        for task, block in blocks:
            edge = block.origin, block.stage
            self.edges[edge] = self.edges.get(edge, 0) + block.events
            self.edge_bytes[edge] = self.edge_bytes.get(edge, 0) + len(block.packed)
            yield task, block
