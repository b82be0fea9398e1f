"""A stream of rows with times that is used several times gives each use what its events give,
however input is cut into batches, tasks and partitions.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import wallaroo
from tests.properties.test_row_joins import (
    DELAY,
    FORMS,
    NS,
    added,
    by_k,
    decode,
    encode,
    rows_of,
    run,
)
from wallaroo.aggregations import Count, Sum, combine_of

WIDTH = wallaroo.range_windows(NS(4))
by_column_k: Any = combine_of(count=Count(), numbers=Sum("n"))
by_event_k: Any = wallaroo.key_extractor(lambda row: row["k"])
columns = wallaroo.with_columns(m="n", of="at")


def changed(row: dict[str, Any]) -> dict[str, Any]:
    row["n"] += 1
    return row


class Uses:
    """Applications of two sources, with rows or events, by what they do with them."""

    def __init__(self, form: str | None):
        self._form = form
        self.left = self._side("left", "7010")
        self.right = self._side("right", "7011")

    def _side(self, name: str, port: str) -> Any:
        decoder = decode if self._form is None else FORMS[self._form]
        at: Any = (lambda row: row["at"]) if self._form is None else "at"
        config = wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decoder)
        return wallaroo.source(name, config).with_event_time(
            at, delay=NS(DELAY), allow_before_1980=True, name=f"time of {name}"
        )

    def key(self, stream: Any) -> Any:
        return stream.key_by(by_event_k if self._form is None else by_k)

    def windows(self, keyed: Any, name: str, what: Any = by_column_k) -> Any:
        return keyed.to(WIDTH.over(added if self._form is None else what, name=name))

    def join_and_windows(self) -> list[Any]:
        left = self.key(self.left)
        joined = left.join(self.key(self.right), columns, within=NS(3), name="joined")
        return [joined, self.windows(left, "added")]

    def two_joins(self) -> list[Any]:
        left, right = self.key(self.left), self.key(self.right)
        latest = left.join_latest(right, columns, name="latest")
        return [latest, left.join(right, columns, within=NS(3), name="joined")]

    def join_with_itself(self) -> list[Any]:
        left = self.key(self.left)
        return [left.join(left, columns, within=NS(3)), self.key(self.right)]

    def join_of_events(self) -> list[Any]:
        left = self.key(self.left)
        joined, late = left.join(
            self.key(self.right), columns, within=NS(3), name="joined"
        ).with_late_events()
        return [joined, late, left]

    def two_keys(self) -> list[Any]:
        merged = self.left.merge(self.right)
        ends = [self.windows(self.key(merged), "added")]
        return [*ends, self.windows(self.key(self.left), "left"), self.key(self.right)]

    def keys_and_events(self) -> list[Any]:
        mapped = self.left.map(changed, name="changed").key_by(by_event_k)
        return [
            self.windows(mapped, "of changed", added),
            self.key(self.left).join(self.key(self.right), columns, within=NS(3), name="joined"),
        ]


def application(form: str | None, uses: str) -> Any:
    ends = [
        end.to_sink(wallaroo.StdoutSinkConfig(encode, name=f"out {number}"))
        for number, end in enumerate(getattr(Uses(form), uses)())
    ]
    return wallaroo.build_application("uses", *ends)


@pytest.mark.parametrize("form", ["arrow", "numpy", "list"])
@pytest.mark.parametrize(
    "uses",
    [
        "join_and_windows",
        "two_joins",
        "join_with_itself",
        "join_of_events",
        "two_keys",
        "keys_and_events",
    ],
)
def test_each_use_gets_what_events_give(uses: str, form: str) -> None:
    by_event, by_row = application(None, uses), application(form, uses)
    for seed in range(5):
        chosen = random.Random(seed)
        moments = [
            (chosen.choice(["left", "right"]), chosen.choice("abc"), at + chosen.randint(0, 12))
            for at in range(25)
        ]
        cuts = [chosen.randint(0, 12) for _ in range(seed)]
        tasks, partitions = 1 + seed % 3, 1 + seed % 2

        expected = run(by_event, rows_of(moments), [], 1, partitions)

        assert run(by_row, rows_of(moments), cuts, tasks, partitions) == expected
