"""Wallaroo's queries in Wallaroo's shape, out of a plan and a status."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    first_letter,
    last_letter,
    shout,
    tcp,
)
from tests.unit.monitoring.status_api.fakes import (
    COUNTER,
    RUNNING,
    WORKERS,
    word_count,
)
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.blocks.shares import shares
from wallaroo.monitoring.metrics.status import WorkerStatus
from wallaroo.monitoring.status_api.queries import (
    COUNTS,
    FROM_STATUS,
    KEYS,
    QUERIES,
    answer,
    query_of,
    status_json,
    status_of,
)

LINES = "stage 0 (source Lines)"


def test_cluster_status_names_the_workers_and_says_whether_events_are_processed() -> None:
    assert answer("cluster-status", word_count(), RUNNING) == {
        "processing_messages": True,
        "worker_count": 2,
        "worker_names": ["worker-1", "worker-2"],
    }


@pytest.mark.parametrize("state", ["starting", "stopping", "stopped", "failed"])
def test_a_run_that_does_not_run_processes_no_messages(state: str) -> None:
    assert (
        answer("cluster-status", word_count(), replace(RUNNING, state=state))["processing_messages"]
        is False
    )


def test_partition_lists_key_groups_by_state_step_and_tasks_by_stateless_stage() -> None:
    assert answer("partition", word_count(), RUNNING) == {
        "state_partitions": {
            COUNTER: {"worker-1": list(range(96)), "worker-2": list(range(96, 128))}
        },
        "stateless_partitions": {LINES: {"worker-1": [0, 1], "worker-2": []}},
    }


def test_partition_count_has_the_same_shape_with_numbers() -> None:
    assert answer("partition-count", word_count(), RUNNING) == {
        "state_partitions": {COUNTER: {"worker-1": 96, "worker-2": 32}},
        "stateless_partitions": {LINES: {"worker-1": 2, "worker-2": 0}},
    }


def test_a_local_run_has_one_worker_with_everything() -> None:
    alone = replace(
        RUNNING, workers=(WorkerStatus("here", "here", 4, 8, tuple(range(128))),), tasks=4
    )
    assert answer("partition-count", word_count(), alone) == {
        "state_partitions": {COUNTER: {"here": 128}},
        "stateless_partitions": {LINES: {"here": 4}},
    }


def test_a_run_that_knows_no_worker_yet_has_empty_partitions() -> None:
    assert answer("partition", word_count(), replace(RUNNING, workers=())) == {
        "state_partitions": {COUNTER: {}},
        "stateless_partitions": {LINES: {}},
    }


def test_before_the_first_batch_tasks_are_parted_by_cores() -> None:
    waiting = tuple(replace(worker, tasks=0) for worker in WORKERS)
    assert answer("stateless-partition", word_count(), replace(RUNNING, workers=waiting)) == {
        LINES: {"worker-1": [0], "worker-2": [1]}
    }


def test_stateless_partition_count_counts_the_tasks() -> None:
    busy = replace(RUNNING, tasks=8)
    assert answer("stateless-partition-count", word_count(), busy) == {
        LINES: {"worker-1": 6, "worker-2": 2}
    }


def test_source_ids_are_the_sources_names_one_each() -> None:
    assert answer("source-ids", merged(), RUNNING) == {"source_ids": ["a", "b"]}


def test_state_steps_list_key_groups_and_other_stages_are_named_by_number() -> None:
    counts = answer("partition-count", merged(), RUNNING)
    assert list(counts["state_partitions"]) == ["count"]
    assert list(counts["stateless_partitions"]) == ["stage 0 (source a)", "stage 1 (source b)"]


def test_a_stage_behind_a_shuffle_without_state_is_named_by_its_steps() -> None:
    plan = wallaroo.build_application("All", tcp("a").collect().to(shout).to_sink(SINK)).plan
    assert list(answer("stateless-partition", plan, RUNNING)) == [
        "stage 0 (source a)",
        "stage 1 (shout)",
    ]


def merged() -> Plan:
    both = (
        tcp("a", 7010)
        .merge(tcp("b", 7011).to(shout))
        .key_by(first_letter)
        .to(count)
        .key_by(last_letter)
    )
    return wallaroo.build_application("Votes", both.to_sink(SINK)).plan


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_known_by_its_own_name_and_by_wallaroos(query: str) -> None:
    assert query_of(query) == query_of(f"{query}-query") == query
    assert (query in FROM_STATUS) != (query in (KEYS, *COUNTS))


@pytest.mark.parametrize("name", ["", "-query", "partitions", "weather", "partition-query-query"])
def test_other_names_are_no_queries(name: str) -> None:
    assert query_of(name) is None


@given(st.integers(0, 300), st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_shares_add_up_and_are_within_one_of_their_weight(number: int, weights: list[int]) -> None:
    parts = shares(number, weights)
    assert sum(parts) == number
    total = sum(weights)
    if total:
        assert all(
            abs(part - number * weight / total) < 1
            for part, weight in zip(parts, weights, strict=True)
        )


def test_without_workers_there_are_no_shares() -> None:
    assert shares(4, []) == []


def test_a_status_survives_its_way_through_json() -> None:
    assert status_of(json.loads(json.dumps(status_json(RUNNING)))) == RUNNING


def test_a_newer_status_is_read_without_what_is_not_known_here() -> None:
    raw = json.loads(json.dumps(status_json(RUNNING)))
    raw["weather"] = "fine"
    raw["workers"][0]["mood"] = "good"
    assert status_of(raw) == RUNNING


def test_a_status_that_lacks_a_field_is_refused() -> None:
    raw = status_json(RUNNING)
    del raw["batches"]
    with pytest.raises(TypeError, match="batches"):
        status_of(raw)
