"""Feeding of levels with a task's part of a batch.

Where it runs: worker, and wherever a runner works in one process.  Pure, except for the functions
that levels call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.blocks import Block, in_order
from wallaroo.engine.levels.level import Level

Routed = tuple[int, Block]  # the receiving task of the next level, and the block
Record = TypeVar("Record")
Fed = Iterator[Routed | None]  # None: the level was fed, and may have blocks to drain
# accepts a level and its number of blocks, returns a function that feeds it one block
Feeder = Callable[[Level, int], Callable[[Block], None]]


def _plain(level: Level, blocks: int) -> Callable[[Block], None]:
    return level.feed_block


def _uncounted(blocks: Iterator[Routed]) -> Iterator[Routed]:
    return blocks


def feed_blocks(
    level: Level,
    plan: Plan,
    number: int,
    task: int,
    blocks: Iterable[Block],
    feeder: Feeder = _plain,
) -> Fed:
    """Feed level ``number`` in the same order in every attempt; forward later levels' blocks."""
    blocks_here: list[Block] = []
    for block in blocks:
        if plan.stages[block.stage].level == number:
            blocks_here.append(block)
        else:
            yield task, level.aligned(block)
    feed = feeder(level, len(blocks_here))
    for block in in_order(blocks_here):
        feed(block)
        yield None


def drain(
    level: Level,
    feeding: Fed,
    stage_outputs: Callable[[], None],
    leaving: Callable[[Iterator[Routed]], Iterator[Routed]] = _uncounted,
) -> Iterator[Routed]:
    """Yield blocks as they fill, then the rest.

    ``stage_outputs`` is called whenever the level may have outputs.  ``leaving`` sees the level's
    own outgoing blocks, not forwarded ones.
    """
    for passed in feeding:
        if passed is not None:
            yield passed
        yield from leaving(level.drain())
        stage_outputs()
    level.end_batch()
    yield from leaving(level.finish())
    stage_outputs()  # an event that cannot be packed is detected when its block is packed


def run_levels(
    widths: Iterable[int], run: Callable[[int, int, list[Record]], Iterator[tuple[int, Record]]]
) -> list[list[Record]]:
    """Run the tasks of all levels sequentially; a shuffle is a list of lists.

    ``widths``: the number of tasks per level.  ``run(level, task, received)`` yields records, each
    with the task of the next level that is to receive it; the records of the last level are
    returned, by that task.
    """
    counts = [*widths]
    received: list[list[Record]] = [[] for _ in range(counts[0])]
    for level, width in enumerate(counts):
        following = counts[level + 1] if level + 1 < len(counts) else max(counts)
        given: list[list[Record]] = [[] for _ in range(following)]
        for task in range(width):
            for consumer, record in run(level, task, received[task]):
                given[consumer].append(record)
        received = given
    return received
