"""The probe of latencies: what it sends, and what it makes of the answers."""

from __future__ import annotations

import struct

import numpy

from benchmarks.lib.probe import KEYS, Answers, events, summary

MS = 1_000_000


def test_events_are_frames_with_a_key_and_when_they_are_due() -> None:
    began = 1_763_000_000_000_000_000

    made = events(range(KEYS - 1, KEYS + 1), 1_000.0, began)

    assert list(struct.iter_unpack(">IIQ", made)) == [
        (12, KEYS - 1, began + (KEYS - 1) * MS),
        (12, 0, began + KEYS * MS),
    ]


def test_a_summary_counts_what_was_due_after_the_warm_up() -> None:
    found = Answers()
    found.add(numpy.array([1, 2, 3], numpy.int64) * 1_000 * MS, 5_000 * MS)
    found.add(numpy.array([4], numpy.int64) * 1_000 * MS, 4_001 * MS)

    assert summary(found, 1_000 * MS, 4, warm_up=1.0) == "3 2000.00 3000.00 3000.00 3000.00"


def test_a_summary_of_what_was_not_answered_names_how_much() -> None:
    found = Answers()
    found.add(numpy.array([1], numpy.int64), 2)

    assert summary(found, 0, 3, warm_up=0.0, settle_s=0.0) == "lost 2"
