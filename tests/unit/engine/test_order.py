"""The order in which a task reads its blocks, and which attempts it has read."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

import pytest

from wallaroo.engine.blocks.blocks import Block, in_order
from wallaroo.engine.report import TaskReport, attempts_digest, refusal


def block(origin: int, producer: int, sequence: int, receipt_ms: int, stage: int = 9) -> Block:
    return Block(stage, origin, producer, sequence, receipt_ms, 1, b"")


def test_however_blocks_arrive_they_are_read_in_one_order() -> None:
    blocks = [
        block(0, 0, 0, 5),
        block(0, 0, 1, 6),
        block(0, 1, 0, 3),
        block(1, 0, 0, 4),
        block(1, 0, 1, 4),
    ]

    orders = {tuple(in_order(some)) for some in permutations(blocks)}

    assert len(orders) == 1


def test_within_an_origin_producers_come_one_after_the_other_and_receipts_do_not_matter() -> None:
    blocks = [
        block(0, producer, sequence, 10 - 3 * producer - sequence)
        for producer in range(3)
        for sequence in range(2)
    ]
    shuffled = random.Random(7).sample(blocks, len(blocks))

    assert list(in_order(shuffled)) == blocks


def test_where_origins_meet_the_older_block_comes_first() -> None:
    left, right = (
        [block(0, 0, n, at) for n, at in enumerate((1, 4, 9))],
        [block(1, 0, n, at) for n, at in enumerate((2, 3, 4))],
    )

    assert [found.receipt_ms for found in in_order([*right, *left])] == [1, 2, 3, 4, 4, 9]
    assert [found.origin for found in in_order([*right, *left])] == [0, 1, 1, 0, 1, 0]


def test_blocks_of_different_stages_keep_their_producers_order() -> None:
    blocks = [block(0, 0, n, 1, stage=n % 2) for n in range(6)]

    found = list(in_order(reversed(blocks)))

    for stage in (0, 1):
        assert [each.sequence for each in found if each.stage == stage] == [
            n for n in range(6) if n % 2 == stage
        ]


def test_a_report_of_the_first_level_that_read_blocks_is_refused_in_words() -> None:
    assert refusal([report(0, 0, "a", p0="x")], [1]).startswith("task 0 of level 0 has not read")


def test_reports_that_are_missing_or_doubled_are_counted() -> None:
    first, second = PRODUCERS
    assert refusal([first], [2]) == "1 of 2 tasks have reported, in 1 reports"
    assert refusal([first, second, second], [2]) == "2 of 2 tasks have reported, in 3 reports"
    assert refusal([], [2, 1]) == "0 of 3 tasks have reported, in 0 reports"


def report(level: int, task: int, attempt: str, **consumed: str) -> TaskReport:
    read = {int(producer[1:]): made for producer, made in consumed.items()}
    return TaskReport(level, task, attempt, attempts_digest(read))


PRODUCERS = [report(0, 0, "a"), report(0, 1, "b")]


def test_tasks_that_read_the_same_attempts_fit_together() -> None:
    consumers = [report(1, 0, "c", p0="a", p1="b"), report(1, 1, "d", p0="a", p1="b")]
    last = [report(2, 0, "e", p0="c", p1="d")]

    assert refusal(PRODUCERS, [2]) == ""
    assert refusal([*PRODUCERS, *consumers, *last], [2, 2, 1]) == ""


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        (
            [report(1, 0, "c", p0="a", p1="b"), report(1, 1, "d", p0="a", p1="old")],
            "task 1 of level 1",
        ),
        ([report(1, 0, "c", p0="old", p1="b")], "task 0 of level 1"),
        (
            [report(1, 0, "c", p0="a", p1="b", p2="x")],
            "task 0 of level 1",
        ),
        (
            [report(1, 0, "c", p0="a", p1="b"), report(2, 0, "d", p0="a")],
            "task 0 of level 2",
        ),
        ([report(1, 0, "c", p0="a")], "task 0 of level 1"),
    ],
    ids=["one of two", "one", "of no task", "of another level", "not read at all"],
)
def test_another_attempt_of_a_producer_or_none_at_all_is_noticed(
    reports: list[TaskReport], found: str
) -> None:
    levels = Counter(each.level for each in [*PRODUCERS, *reports])

    refused = refusal([*PRODUCERS, *reports], [levels[level] for level in sorted(levels)])

    assert refused.startswith(f"{found} has not read exactly the")
