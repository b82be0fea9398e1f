"""A stage's builder is chosen by what flows in the stage."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import wallaroo
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.columnar.exchange import ColumnExchange
from wallaroo.engine.columnar.stages import RowStageBuilder
from wallaroo.engine.exchange.exchange import Exchange
from wallaroo.engine.levels.side_outputs import NOTHING_COMMITTED
from wallaroo.engine.levels.stages import LevelStages
from wallaroo.engine.stages.event_stages import EventStageBuilder
from wallaroo.engine.time.watermarks import NO_TIME

ROW = np.dtype([("key", "S1"), ("size", ">i4")])


class Total:
    size = 0


@wallaroo.state_computation("add", state=Total)
def add(row: Any, own: Total) -> int:
    own.size += row["size"]
    return own.size


@wallaroo.key_extractor
def key_of(row: dict[str, Any]) -> bytes:
    return row["key"]  # type: ignore[no-any-return]


@wallaroo.batch_key_extractor
def keys_of(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return rows["key"]  # type: ignore[no-any-return]


@wallaroo.encoder
def encode(size: int) -> str:
    return str(size)


def plan_of(extractor: Any) -> Plan:
    source = wallaroo.source(
        "rows", wallaroo.TCPSourceConfig("rows", "127.0.0.1", "7010", wallaroo.fixed_layout(ROW))
    )
    pipeline = source.key_by(extractor).to(add).to_sink(wallaroo.StdoutSinkConfig(encode))
    return wallaroo.build_application("rows", pipeline).plan


def stages_of(plan: Plan, level: int) -> LevelStages:
    return LevelStages(plan, level, 0, 1, NOTHING_COMMITTED, -1, NO_TIME, 1, is_sampled=False)


@pytest.mark.parametrize(
    ("extractor", "exchange", "after"),
    [
        pytest.param(key_of, Exchange, EventStageBuilder, id="events through the shuffle"),
        pytest.param(keys_of, ColumnExchange, RowStageBuilder, id="rows through the shuffle"),
    ],
)
def test_a_builder_for_rows_is_chosen_if_rows_come_in_or_go_out(
    extractor: Any, exchange: type[Any], after: type[Any]
) -> None:
    """A vectorized decoder's stage has rows; the next stage has them only if they are shuffled."""
    plan = plan_of(extractor)

    reading = stages_of(plan, 0).builders[0]
    (following,) = stages_of(plan, 1).builders.values()

    assert type(reading) is RowStageBuilder
    assert type(reading.exchange) is exchange
    assert type(following) is after
    assert following.has_rows is (after is RowStageBuilder)


def test_numpy_is_not_loaded_for_a_level_of_events() -> None:
    script = """
        import sys
        import wallaroo
        from wallaroo.engine.levels.level import Level

        @wallaroo.decoder(header_length=4, length_fmt=">I")
        def decode(payload):
            return payload.decode()

        source = wallaroo.source("in", wallaroo.TCPSourceConfig("in", "127.0.0.1", "7010", decode))
        application = wallaroo.build_application("a", source.to_sink(wallaroo.StdoutSinkConfig()))
        Level(application.plan, 0, 0, 1).feed_payloads(0, [b"a"])
        print("numpy" in sys.modules, "wallaroo.engine.columnar.stages" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "False"]
