"""Timing steps on samples: the same results as without, and time where it belongs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wallaroo
from wallaroo import aggregations
from wallaroo.api.application import Application
from wallaroo.engine.levels.level import Level
from wallaroo.engine.stages.sampling import EVENTS_MAX, StageSample
from wallaroo.testing.local_runner.runner import Input, LocalRunner


class Clock:
    """Nanoseconds that pass in user functions only."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


CLOCK = Clock()


def spend(nanoseconds: int) -> None:
    CLOCK.now += nanoseconds


class Count:
    def __init__(self) -> None:
        self.seen = 0


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> str:
    spend(100)
    return payload.decode()


@wallaroo.computation_multi("split")
def split(line: str) -> list[str]:
    spend(1000)
    return line.split()


@wallaroo.key_extractor
def word_of(word: str) -> str:
    spend(10)
    return word


@wallaroo.state_computation("count", state=Count)
def count(word: str, state: Count) -> str | None:
    spend(200)
    state.seen += 1
    return f"{word} {state.seen}" if state.seen % 2 else None


@wallaroo.encoder
def encode(output: str) -> bytes:
    spend(30)
    return output.encode() + b"\n"


@pytest.fixture
def application() -> Application:
    source = wallaroo.source(
        "lines", wallaroo.TCPSourceConfig("Lines", "127.0.0.1", "7010", decode)
    )
    pipeline = source.to(split).key_by(word_of).to(count)
    return wallaroo.build_application(
        "sampled", pipeline.to_sink(wallaroo.TCPSinkConfig("127.0.0.1", "7002", encode))
    )


def inputs(runner: LocalRunner, lines: int) -> list[list[Input]]:
    frames = b"".join(
        runner.frames(0, f"a b{number % 7} c{number % 3}".encode()) for number in range(lines)
    )
    return [[(0, frames, 5)]]


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[StageSample]:
    """Let every block and every run of frames be sampled."""
    seen: list[StageSample] = []

    def frames(self: Level, source: int, some: bytes, receipt_ms: int, *of: Any) -> int:
        number, samples = self.sample(source, some, receipt_ms, CLOCK)
        assert samples
        seen.extend(samples)
        return number

    def block(self: Level, some: Any) -> None:
        samples = self.sample_block(some, CLOCK)
        assert samples
        seen.extend(samples)

    monkeypatch.setattr(Level, "feed_frames", frames)
    monkeypatch.setattr(Level, "feed_block", block)
    return seen


@pytest.mark.parametrize("lines", [0, 1, EVENTS_MAX, 3 * EVENTS_MAX])
def test_a_sampled_run_has_the_output_and_state_of_one_that_is_not(
    application: Application, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = LocalRunner(application.plan)
    expected = plain.run_batch(inputs(plain, lines), 2)

    with monkeypatch.context() as patch:
        patch.setattr(Level, "feed_frames", lambda self, source, some, at, *of: (
            self.sample(source, some, at, CLOCK)[0]))  # fmt: skip
        patch.setattr(Level, "feed_block", lambda self, block: self.sample_block(block, CLOCK))
        sampled = LocalRunner(application.plan)
        found = sampled.run_batch(inputs(sampled, lines), 2)

    assert found.outputs == expected.outputs
    assert found.changes == expected.changes
    assert found.events == expected.events


ROW = np.dtype([("key", "S1"), ("second", ">f8")])


def row_key(row: dict[str, Any]) -> str:
    return str(row["key"].decode())


def row_second(row: dict[str, Any]) -> float:
    return float(row["second"])


def test_rows_that_are_sampled_keep_their_partition_and_its_watermark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = wallaroo.source(
        "rows", wallaroo.TCPSourceConfig("rows", "127.0.0.1", "7010", wallaroo.fixed_layout(ROW))
    )
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(aggregations.Count())
    pipeline = source.with_event_time(row_second, allow_before_1980=True).key_by(
        wallaroo.key_extractor(row_key)
    )
    plan = wallaroo.build_application(
        "rows", pipeline.to(windows).to_sink(wallaroo.StdoutSinkConfig())
    ).plan
    feed = Level.feed_frames
    is_sampling: list[bool] = []

    def sample(self: Level, source: int, run: bytes, at: int, *rest: Any) -> int:
        if is_sampling:
            return feed(self, source, run, at, *rest)
        is_sampling.append(True)
        number, _ = self.sample(source, run, at, CLOCK, *rest)
        is_sampling.clear()
        return number

    def watermarks() -> Any:
        runner = LocalRunner(plan)
        frames = [runner.frames(0, np.array((b"a", second), ROW).tobytes()) for second in (50, 5)]
        pieces = [[Input(0, frames[0], 5, "one"), Input(0, frames[1], 5, "two")]]
        runner.commit(runner.run_batch(pieces, 1))
        return runner.time

    expected = watermarks()
    monkeypatch.setattr(Level, "feed_frames", sample)
    assert watermarks() == expected
    assert set(expected.sources["rows"].partitions) == {"one", "two"}


def test_the_keys_that_take_most_time_are_listed(
    application: Application, samples: list[StageSample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a key that is rare and slow, then it is not a frequent one, but the slowest."""
    plain = application.plan.stages[1].steps[0].function

    def slow_for_c2(word: str, state: Count) -> str | None:
        spend(50_000 if word == "c2" else 0)
        return plain(word, state)

    monkeypatch.setattr(application.plan.stages[1].steps[0], "function", slow_for_c2)
    runner = LocalRunner(application.plan)
    runner.run_batch(inputs(runner, 12), 1)
    (counted,) = [sample for sample in samples if sample.stage == 1]
    assert counted.keys[0] == ("a", 12)
    assert counted.slow_keys[0][0] == "c2"
    took_ns = sum(took for _, took in counted.slow_keys) + counted.other_ns
    assert took_ns == counted.steps[1].nanoseconds + counted.steps[2].nanoseconds


def test_each_steps_own_time_is_separate(
    application: Application, samples: list[StageSample]
) -> None:
    runner = LocalRunner(application.plan)
    runner.run_batch(inputs(runner, 80), 1)
    first, second = samples
    assert [(step.step, step.events, step.nanoseconds) for step in first.steps] == [
        ("decode", 80, 80 * 100),
        ("split", 80, 80 * 1000),
        ("word_of", 240, 240 * 10),
    ]
    outputs = second.steps[-1].events
    assert 0 < outputs < 240
    assert [(step.step, step.events, step.nanoseconds) for step in second.steps] == [
        ("receive", 240, 0),
        ("count", 240, 240 * 200),
        ("encode", outputs, outputs * 30),
    ]


def test_a_sample_is_of_bounded_size_and_lists_the_most_frequent_keys(
    application: Application, samples: list[StageSample]
) -> None:
    runner = LocalRunner(application.plan)
    runner.run_batch(inputs(runner, 3 * EVENTS_MAX), 1)
    first, *behind = samples
    assert first.events == EVENTS_MAX
    assert all(sample.events <= EVENTS_MAX for sample in behind)
    keys = behind[0].keys
    assert keys[0][0] == "a"
    assert sum(number for _, number in keys) + behind[0].other_keys == behind[0].events
    assert sum(behind[0].groups.values()) == behind[0].events


def is_b(word: str) -> bool:
    spend(7)
    return word.startswith("b")


def shout(word: str) -> str:
    spend(500)
    return word.upper()


@wallaroo.state_computation("count c", state=Count)
def count_c(word: str, state: Count) -> str:
    spend(40)
    return word


def test_the_time_of_branches_is_that_of_their_own_steps(samples: list[StageSample]) -> None:
    """Given streams that part before and after a shuffle, then no step has the time of another."""
    lines = wallaroo.source("lines", wallaroo.TCPSourceConfig("Lines", "127.0.0.1", "7010", decode))
    words = lines.to(split)
    some_b, others = words.branch(is_b)
    counted = others.key_by(word_of)
    sink = wallaroo.TCPSinkConfig("127.0.0.1", "7002", encode)
    application = wallaroo.build_application(
        "parted",
        some_b.map(shout).to_sink(sink),
        counted.to(count).to_sink(sink),
        counted.to(count_c).to_sink(sink),
    )
    runner = LocalRunner(application.plan)

    runner.run_batch(inputs(runner, 80), 1)

    found = {
        sample.stage: [(step.step, step.events, step.nanoseconds) for step in sample.steps]
        for sample in samples
    }
    assert found == {
        0: [("decode", 80, 80 * 100), ("split", 80, 80 * 1000), ("is_b", 240, 240 * 7)],
        1: [("branch", 80, 0), ("shout", 80, 80 * 500), ("encode", 80, 80 * 30)],
        2: [("branch", 160, 0), ("word_of", 160, 160 * 10)],
        3: [("receive", 160, 0), ("branch", 160, 0)],
        4: [("branch", 160, 0), ("count", 160, 160 * 200), ("encode", 81, 81 * 30)],
        5: [("branch", 160, 0), ("count c", 160, 160 * 40), ("encode", 160, 160 * 30)],
    }
    assert {sample.stage: (sample.head, sample.events) for sample in samples} == {
        0: (0, 80), 1: (0, 80), 2: (0, 80), 3: (3, 160), 4: (3, 160), 5: (3, 160)
    }  # fmt: skip


class Seconds:
    def __init__(self) -> None:
        self.total = 0.0


@wallaroo.state_computation("add seconds", state=Seconds)
def add_seconds(row: dict[str, Any], own: Seconds) -> str:
    own.total += row["second"]
    return str(own.total)


def test_rows_for_a_step_that_takes_events_are_processed_in_a_sampled_run() -> None:
    """A vectorized decoder's rows reach such a step as a block of columns, which has no copy."""
    source = wallaroo.source(
        "rows", wallaroo.TCPSourceConfig("rows", "127.0.0.1", "7010", wallaroo.fixed_layout(ROW))
    )
    pipeline = source.collect().to(add_seconds)
    plan = wallaroo.build_application(
        "rows", pipeline.to_sink(wallaroo.StdoutSinkConfig(encode))
    ).plan
    first = Level(plan, 0, 0, 1)
    first.feed_payloads(0, [np.array((b"a", second), ROW).tobytes() for second in (1, 2, 4)])
    second = Level(plan, 1, 0, 1)

    samples = [second.sample_block(block, CLOCK) for _, block in first.finish()]

    assert samples == [()]
    assert second.effects.outputs[0] == [b"1.0\n", b"3.0\n", b"7.0\n"]
