"""Dead letters do not depend on how a stream falls into batches and tasks, nor on how often a batch
is tried.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.apps.tolerant import every_kind
from wallaroo.testing import LocalApplication, run_local

STEPS = ("decode", "compute", "compute multi", "extract", "state", "state multi", "encode")
EVENTS = st.lists(
    st.sampled_from(
        [*(f"fail {step}.{key}" for step in STEPS for key in "ab"), "fine a", "fine b"]
    ),
    max_size=40,
)
APPLICATION = every_kind("dead-letter", Path("/nowhere"), Path("/nowhere"))


def without_batch(letters: list[dict[str, Any]]) -> list[str]:
    return sorted(
        json.dumps({name: value for name, value in letter.items() if name != "batch"})
        for letter in letters
    )


@given(EVENTS, st.integers(1, 8), st.integers(1, 4))
def test_any_split_into_batches_gives_the_same_dead_letters_but_for_the_batch_number(
    events: list[str], batches: int, tasks: int
) -> None:
    inputs = {"in": [event.encode() for event in events]}
    undisturbed = run_local(APPLICATION, inputs, batches=1, tasks=1)
    split = run_local(APPLICATION, inputs, batches=batches, tasks=tasks)

    assert without_batch(split.dead_letters) == without_batch(undisturbed.dead_letters)
    assert len(split.dead_letters) == sum(event.startswith("fail") for event in events)
    assert sorted(split.outputs) == sorted(undisturbed.outputs)
    assert split.errors == undisturbed.errors


@given(EVENTS, st.integers(1, 4))
def test_a_batch_that_is_tried_again_writes_the_same_bytes(events: list[str], tasks: int) -> None:
    running = LocalApplication(APPLICATION, tasks)
    running.send("in", *(event.encode() for event in events))

    lost = running.attempt()
    committed = running.batch()

    assert lost.outputs == dict(enumerate(committed.values()))
