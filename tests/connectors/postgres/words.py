"""An application for the tests: words from a generator, counted, every count a row of PostgreSQL.

Arguments: ``--dsn DSN --table TABLE --words COUNT --gate FILE``; the second half of the words waits
until FILE exists, and the last quarter until FILE.last does.
"""

from __future__ import annotations

import time
from pathlib import Path

import wallaroo
from wallaroo.sinks import PostgresSinkConfig, row_encoder

WORDS = ("in", "every", "river\t", "größer", "two\nlines", "back\\slash", "\\N")
PAUSE_SECONDS = 0.0005  # between two words behind the gate, so that they fill several batches


def word_at(number: int) -> str:
    """The words, in an order that does not repeat soon."""
    return WORDS[number * number % 11 % len(WORDS)]


class Numbers:
    """Counts to a limit; half way it waits for the gate, and once more for the last quarter."""

    def __init__(self, limit: int, gate: str) -> None:
        self.limit, self.gate = limit, gate

    def initial_value(self) -> int:
        return 0

    def apply(self, number: int) -> int | None:
        if number >= self.limit // 2:
            time.sleep(PAUSE_SECONDS)
            gate = self.gate if number < self.limit * 3 // 4 else f"{self.gate}.last"
            while not Path(gate).exists():
                time.sleep(0.01)
        return number + 1 if number + 1 < self.limit else None


class Total:
    """The state of one word."""

    def __init__(self) -> None:
        self.count = 0


@wallaroo.computation
def to_word(number: int) -> str:
    return word_at(number)


@wallaroo.key_extractor
def word_of(word: str) -> str:
    return word


@wallaroo.state_computation(name="count", state=Total)
def count(word: str, total: Total) -> tuple[str, int]:
    total.count += 1
    return word, total.count


@row_encoder
def as_row(counted: tuple[str, int]) -> tuple[str, int]:
    return counted


def application_setup(args: list[str]) -> object:
    """Build the application."""
    dsn, table, words, gate = (
        args[args.index(option) + 1] for option in ("--dsn", "--table", "--words", "--gate")
    )
    numbers = wallaroo.source(
        "numbers", wallaroo.GenSourceConfig("numbers", Numbers(int(words), gate))
    )
    sink = PostgresSinkConfig(dsn, table, ("word", "total"), as_row)
    return wallaroo.build_application(
        "Words", numbers.to(to_word).key_by(word_of).to(count).to_sink(sink)
    )
