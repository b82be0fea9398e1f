"""ShuffleBench: which consumers want a record, and how long a recovery lasts."""

from __future__ import annotations

from random import Random

import numpy

from benchmarks.shufflebench import rules
from benchmarks.shufflebench.__main__ import recovery_s


def test_a_consumer_wants_the_records_whose_hash_is_in_its_range() -> None:
    numbers = Random(rules.SEED)
    begins = [(numbers.getrandbits(63), consumer) for consumer in range(rules.CONSUMERS)]
    width = int(0.2 / 1000 * 2**63)
    records = [Random(number).randbytes(16) for number in range(2_000)]
    edges = [begin + width - 1 for begin, _ in begins] + [begin for begin, _ in begins]
    records += [((edge % 2**63) << 1).to_bytes(8, "big") for edge in edges]
    for record in records:
        value = int.from_bytes(record[:8], "big") >> 1
        wanted = {consumer for begin, consumer in begins if (value - begin) % 2**63 < width}
        found = rules.wanted_by(record)
        assert len(found) == len(set(found))
        assert set(found) == wanted


def test_a_recovery_ends_with_the_last_of_the_outputs_that_are_late_after_a_kill() -> None:
    due_ms = numpy.arange(0, 20_000, 100)
    came_ms = due_ms + 50
    stopped = (due_ms >= 10_000) & (due_ms < 12_000)
    came_ms[stopped] = 12_500
    came_ms[due_ms == 15_000] += 500  # one that is late for another reason
    times = numpy.stack([due_ms, came_ms], axis=1)
    assert recovery_s(times, 10_000.0) == 2.5


def test_a_kill_without_late_outputs_has_no_recovery() -> None:
    due_ms = numpy.arange(0, 20_000, 100)
    assert recovery_s(numpy.stack([due_ms, due_ms + 50], axis=1), 10_000.0) == 0.0
