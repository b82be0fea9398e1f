"""An event for which a step raises is skipped or becomes a dead letter, exactly once, on every
runner, in every step.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.conformance.apps import tolerant
from tests.conformance.runners import SparkRunner
from wallaroo.errors import UserCodeError

STEPS = ("decode", "compute", "compute multi", "extract", "state", "state multi", "encode")
BAD = [f"fail {step}.{number}" for number in range(4) for step in STEPS]
FINE = [f"fine {number}" for number in range(28)]
LINES = [line.encode() for pair in zip(FINE, BAD, strict=True) for line in pair]


def step_of(event: str) -> str:
    return event.removeprefix("fail ").rpartition(".")[0]


def run(policy: str, runner: Any) -> dict[str, list[bytes]]:
    outputs: dict[str, list[bytes]] = runner(partial(tolerant.every_kind, policy), {"in": LINES})
    return outputs


def event_of(letter: dict[str, Any]) -> str:
    """The event as it went into the step, from what the letter keeps of it."""
    if letter["step"] == "decode":
        return bytes.fromhex(letter["frame_hex"]).decode()
    event: str = pickle.loads(base64.b64decode(letter["event_pickle"]))
    return event


def test_skipped_events_are_missing_and_all_others_arrive(runner: Any) -> None:
    outputs = run("skip", runner)

    assert sorted(line.decode() for line in outputs["out"]) == sorted(FINE)


def test_every_failed_event_is_one_dead_letter_and_all_others_arrive(runner: Any) -> None:
    outputs = run("dead-letter", runner)
    letters = [json.loads(line) for line in outputs["out2"]]

    assert sorted(line.decode() for line in outputs["out"]) == sorted(FINE)
    assert Counter((letter["step"], event_of(letter)) for letter in letters) == Counter(
        (step_of(event), event) for event in BAD
    )
    for letter in letters:
        assert letter["error"] == f"ValueError: asked to fail in {letter['step']}"
        assert letter["application"] == "tolerant"
        assert letter["batch"] >= 0
        assert letter["traceback"].endswith(f"ValueError: asked to fail in {letter['step']}\n")
        before_the_shuffle = letter["step"] in ("decode", "compute", "compute multi", "extract")
        assert letter.get("source") == ("in" if before_the_shuffle else None)
        assert letter.get("key") == (None if before_the_shuffle else event_of(letter)[-1:])


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_no_policy_goes_on_behind_a_sys_exit(policy: str, runner: Any) -> None:
    with pytest.raises(UserCodeError) as caught:
        runner(
            partial(tolerant.every_kind, policy), {"in": [b"fine", b"exit state multi.", b"fine"]}
        )

    assert (caught.value.step, caught.value.cause) == ("state multi", "SystemExit: 3")
    assert caught.value.event == "'exit state multi.' (key '.')"


@pytest.mark.spark
@pytest.mark.java
def test_dead_letters_of_many_batches_on_spark_are_one_per_failed_event(
    spark_runner: SparkRunner,
) -> None:
    # a batch ends where a read of the file did, every 256 KiB
    bad = [f"fail {STEPS[number % len(STEPS)]}.{number:0200d}" for number in range(2_400)]
    lines = [line.encode() for event in bad for line in (event, event.removeprefix("fail "))]

    outputs = spark_runner(partial(tolerant.every_kind, "dead-letter"), {"in": lines})
    letters = [json.loads(line) for line in outputs["out2"]]

    assert len({letter["batch"] for letter in letters}) > 1
    assert Counter(event_of(letter) for letter in letters) == Counter(bad)
    assert len(outputs["out"]) == len(bad)
