"""What is counted, sampled and written of events that fail, and what stops the run whatever the
policy.
"""

from __future__ import annotations

import base64
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.tolerant import Count
from wallaroo.api.building import FIELDS
from wallaroo.engine.failures.dead_letters import (
    EVENT_BYTES_MAX,
    TRACE_CHARS_MAX,
    as_line,
    letter_of,
)
from wallaroo.engine.failures.policies import Failures, Sample
from wallaroo.engine.report import TaskReport
from wallaroo.errors import PeerError, UserCodeError
from wallaroo.monitoring.metrics.failed_events import (
    LINES_MAX,
    error_counts,
    failure_lines,
    gather_failures,
)
from wallaroo.testing import LocalApplication, run_local


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


@wallaroo.computation("parse", on_error="dead-letter")
def parse(event: Any) -> int:
    return int(event)


@wallaroo.decoder(name="decode", on_error="dead-letter")
def decode(payload: bytes) -> str:
    return payload.decode()


def letter(
    event: Any = "x",
    step: Any = parse,
    key: Any = None,
    error: Exception | None = None,
    source: str = "",
) -> dict[str, Any]:
    made = letter_of("app", 7, step, source, key, event, error or raised(ValueError("no")))
    assert json.loads(as_line(made)) == made
    return made


def build(policy: str, *steps: Any, key: Any = None, sink: Any = None) -> Any:
    pipeline: Any = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt", text))
    for step in steps:
        pipeline = pipeline.key_by(step) if step.kind == "key_extractor" else pipeline.to(step)
    letters = sink or (wallaroo.FileSinkConfig("dead.jsonl") if policy == "dead-letter" else None)
    return wallaroo.build_application(
        "app", pipeline.to_sink(wallaroo.StdoutSinkConfig()), dead_letters=letters
    )


@wallaroo.decoder(name="text")
def text(payload: bytes) -> str:
    return payload.decode()


@wallaroo.key_extractor("same")
def same(event: Any) -> str:
    return "k"


# -- letters
# --------------------------------------------------------------------------------------------------


def test_a_letter_holds_what_a_person_and_a_program_need() -> None:
    made = letter(event="x", source="in", key="k")

    assert list(made) == [
        "application",
        "step",
        "kind",
        "place",
        "batch",
        "source",
        "key",
        "event",
        "event_pickle",
        "error",
        "traceback",
    ]
    assert (made["application"], made["step"], made["kind"], made["batch"]) == (
        "app",
        "parse",
        "computation",
        7,
    )
    assert set(made) <= set(FIELDS)
    assert made["error"] == "ValueError: no"
    assert pickle.loads(base64.b64decode(made["event_pickle"])) == "x"


def test_the_page_names_the_fields() -> None:
    page = Path("docs/errors.md").read_text(encoding="utf-8")
    table = page.partition("## Contents of a dead letter")[2].partition("\n\nA sink")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(FIELDS)


def test_a_letter_of_a_decoder_holds_the_whole_frame() -> None:
    made = letter(event=b"\xff\x00", step=decode)

    assert (made["frame_hex"], made["frame_bytes"]) == ("ff00", 2)
    assert "event_pickle" not in made


def test_a_huge_frame_is_cut_and_its_length_kept() -> None:
    made = letter(event=bytes(EVENT_BYTES_MAX + 1), step=decode)

    assert (len(made["frame_hex"]), made["frame_bytes"]) == (
        2 * EVENT_BYTES_MAX,
        EVENT_BYTES_MAX + 1,
    )


@pytest.mark.parametrize(
    "event", ["x" * EVENT_BYTES_MAX, lambda: None], ids=["huge", "not picklable"]
)
def test_an_event_that_is_huge_or_cannot_be_pickled_is_only_described(event: Any) -> None:
    made = letter(event=event)

    assert "event_pickle" not in made
    assert made["event"]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("é", "é"),
        (7, 7),
        (b"ab", "b'ab'"),
        (2**64, str(2**64)),
        ("k" * 2000, "'" + "k" * 199 + "… (2002 characters)"),
    ],
)
def test_a_key_is_plain_json(key: Any, shown: Any) -> None:
    assert letter(key=key)["key"] == shown


def test_a_deep_tracebacks_innermost_part_is_kept() -> None:
    made = letter(error=raised(ValueError("v" * 20_000)))

    assert len(made["traceback"]) == TRACE_CHARS_MAX
    assert len(made["error"]) == 2000


def test_an_exception_whose_text_raises_is_described_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert letter(error=raised(Mute()))["error"] == "Mute whose text raised RuntimeError"


# -- counts and samples
# --------------------------------------------------------------------------------------------------


def test_the_first_failures_and_then_every_power_of_ten_are_sampled() -> None:
    failures = Failures("app", 0, lambda written: None)
    failed = failures.policy(parse)
    for number in range(1, 1_201):
        failed(number, ValueError("no"), None)

    assert failures.counts == {("parse", "dead-letter"): 1_200}
    assert [sample.number for sample in failures.samples] == [1, 2, 3, 4, 5, 10, 100, 1000]


def test_counts_of_tasks_add_up_and_the_last_sample_is_kept() -> None:
    def report(task: int, count: int) -> TaskReport:
        sample = Sample("parse", "skip", "a.py:1", f"event {task}", "ValueError: no", 1)
        return TaskReport(0, task, "a", errors={("parse", "skip"): count}, samples=(sample,))

    counts, samples = gather_failures([report(1, 2), report(0, 3)])
    counted = error_counts(counts, {"parse": samples[-1].event})

    assert [(each.step, each.skipped, each.dead_lettered, each.last) for each in counted] == [
        ("parse", 5, 0, "event 1")
    ]


def test_a_batch_full_of_failures_says_a_few_lines_and_how_many_more_there_are() -> None:
    samples = [
        Sample(step, "skip", "a.py:1", "'x'", "ValueError: no", 1)
        for step in ("a", "a", "a", "b", "c", "d")
    ]
    lines = list(
        failure_lines(
            4, {("a", "skip"): 1000, ("b", "skip"): 1, ("c", "skip"): 1, ("d", "skip"): 1}, samples
        )
    )

    assert len(lines) == LINES_MAX + 1
    assert lines[0] == "batch 4: step 'a' failed at a.py:1: ValueError: no; event skipped: 'x'"
    assert "step 'b'" in lines[1]
    assert "step 'c'" in lines[2]
    assert (
        lines[-1] == "batch 4: 1,000 more events failed and were skipped or written as dead letters"
    )


@wallaroo.computation("talk", on_error="skip")
def talk(event: str) -> str:
    raise ValueError(f"{event}\nsecond line \x1b[31m")


def test_control_characters_of_an_exception_do_not_reach_the_log() -> None:
    running = LocalApplication(build("skip", talk))
    running.send("in", b"x")
    (sample,) = running.attempt().samples
    (line,) = failure_lines(1, {("talk", "skip"): 1}, [sample])
    assert line.isprintable()
    assert r"ValueError: x\nsecond line \x1b[31m" in line


def test_the_error_that_ends_a_run_may_have_lines_and_controls_no_terminal() -> None:
    error = UserCodeError("talk", "", "'x'", "ValueError: x\nsecond line \x1b[31m")
    assert "ValueError: x\nsecond line \\x1b[31m\n" in str(error)


# -- what a run does
# --------------------------------------------------------------------------------------------------


def test_a_local_run_gives_its_dead_letters_and_counts() -> None:
    done = run_local(build("dead-letter", parse), {"in": [b"1", b"x", b"2", b"y"]}, batches=2)

    assert done.outputs == [b"1", b"2"]
    assert [(made["batch"], made["event"], made["source"]) for made in done.dead_letters] == [
        (0, "'x'", "in"),
        (1, "'y'", "in"),
    ]
    assert done.errors == {"parse": 2}


def test_state_keeps_what_the_function_did_before_it_raised() -> None:
    @wallaroo.state_computation("count", state=Count, on_error="skip")
    def count(event: str, own: Count) -> int:
        own.count += 1
        if event == "bad":
            raise ValueError(event)
        return own.count

    done = run_local(build("skip", same, count), {"in": [b"a", b"bad", b"b"]})

    assert done.outputs == [b"1", b"3"]
    assert done.state("count")["k"].count == 3


def test_state_that_cannot_be_stored_stops_the_run_whatever_the_policy() -> None:
    @wallaroo.state_computation("keep", state=Count, on_error="skip")
    def keep(event: str, own: Any) -> str:
        own.count = lambda: None
        return event

    with pytest.raises(UserCodeError, match="state of key 'k'"):
        run_local(build("skip", same, keep), {"in": [b"a"]})


def test_an_event_that_cannot_be_packed_is_skipped_and_its_block_goes_on() -> None:
    @wallaroo.computation("make", on_error="skip")
    def make(event: str) -> Any:
        return (lambda: event) if event == "bad" else event

    @wallaroo.state_computation("count", state=Count)
    def count(event: str, own: Count) -> str:
        own.count += 1
        return event

    done = run_local(build("skip", make, same, count), {"in": [b"a", b"bad", b"b"]}, tasks=1)

    assert done.outputs == [b"a", b"b"]
    assert done.errors == {"make": 1}


def test_a_dead_letter_sink_with_an_encoder_gets_the_letter_as_a_dict() -> None:
    @wallaroo.encoder
    def short(made: dict[str, Any]) -> str:
        return f"{made['step']}: {made['event']}"

    application = build("dead-letter", parse, sink=wallaroo.FileSinkConfig("dead.txt", short))

    assert run_local(application, {"in": [b"x"]}).by_sink["dead-letters"] == [b"parse: 'x'"]


def test_an_encoder_that_fails_on_a_dead_letter_stops_the_run() -> None:
    @wallaroo.encoder(on_error="skip")
    def broken(made: dict[str, Any]) -> str:
        raise KeyError("no")

    application = build("dead-letter", parse, sink=wallaroo.FileSinkConfig("dead.txt", broken))

    with pytest.raises(UserCodeError, match="step 'broken' failed"):
        run_local(application, {"in": [b"x"]})


def test_a_letter_looks_for_its_place_in_the_users_file() -> None:
    made = run_local(build("dead-letter", parse), {"in": [b"x"]}).dead_letters[0]

    assert Path(made["place"].rpartition(":")[0]) == Path(__file__)
    assert "/wallaroo/engine/" not in made["traceback"]


@pytest.mark.parametrize("policy", ["stop", "skip", "dead-letter"])
def test_what_is_outside_of_the_application_ends_the_run_whatever_the_policy(policy: str) -> None:
    @wallaroo.computation("look up", on_error=policy)
    def look_up(event: str) -> str:
        raise PeerError("the server of names is away; start it")

    with pytest.raises(PeerError, match=r"computation 'look up': the server of names is away"):
        run_local(build(policy, look_up), {"in": [b"x"]})
