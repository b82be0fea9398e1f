"""The programs that `make bench` runs."""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks.run_all import FULL, PROGRAMS


def test_every_benchmark_has_a_program_that_is_there() -> None:
    assert set(PROGRAMS) == set(FULL)
    assert [m for m, *_ in PROGRAMS.values() if find_spec(f"benchmarks.{m}") is None] == []
