"""Samples of stages with time: windows, joins, timers and events in order."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import wallaroo
from wallaroo import aggregations
from wallaroo.dataflow.plan.model import Plan
from wallaroo.engine.levels.level import Level
from wallaroo.engine.stages.sampling import EVENTS_MAX, StageSample
from wallaroo.testing.local_runner.runner import Input, LocalRunner

SECOND = 1_000_000_000


class Clock:
    """Nanoseconds that pass in user functions only."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


CLOCK = Clock()


def spend(nanoseconds: int) -> None:
    CLOCK.now += nanoseconds


@wallaroo.decoder(header_length=4, length_fmt=">I")
def decode(payload: bytes) -> tuple[str, int]:
    spend(100)
    key, second = payload.decode().split()
    return key, int(second)


def second_of(event: tuple[str, int]) -> int:
    spend(5)
    return event[1] * SECOND


@wallaroo.key_extractor
def key_of(event: tuple[str, int]) -> str:
    spend(10)
    return event[0]


@wallaroo.encoder
def encode(output: object) -> bytes:
    spend(30)
    return repr(output).encode() + b"\n"


class Summed(wallaroo.Aggregation):
    def name(self) -> str:
        return "summed"

    def initial_accumulator(self) -> list[int]:
        return [0]

    def update(self, event: tuple[str, int], accumulator: list[int]) -> None:
        spend(200)
        accumulator[0] += event[1]

    def combine(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0]]

    def output(self, key: str, accumulator: list[int]) -> int:
        spend(1000)
        return accumulator[0]


def shown(total: object) -> str:
    spend(70)
    return f"= {total}"


class Seen:
    def __init__(self) -> None:
        self.seconds: list[int] = []


@wallaroo.state_computation("seen", state=Seen)
def seen(event: tuple[str, int], state: Seen, context: wallaroo.Context) -> str:
    state.seconds.append(event[1])
    context.set_timer("quiet", (event[1] + 3) * SECOND)
    return f"{event[0]} {state.seconds}"


@seen.on_timer
def quiet(state: Seen, context: wallaroo.Context, name: str) -> str:
    return f"quiet after {state.seconds}"


SINK = wallaroo.TCPSinkConfig("127.0.0.1", "7002", encode)


def events(name: str = "events") -> Any:
    port = "7010" if name == "events" else "7011"
    config = wallaroo.TCPSourceConfig(name, "127.0.0.1", port, decode)
    return wallaroo.source(name, config).with_event_time(
        second_of, delay=wallaroo.seconds(2), allow_before_1980=True
    )


def plan_of(*pipelines: Any) -> Plan:
    return wallaroo.build_application("timed", *pipelines).plan


def in_windows() -> Plan:
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(Summed)
    return plan_of(events().key_by(key_of).to(windows).map(shown).to_sink(SINK))


def in_windows_pre_aggregated_before() -> Plan:
    windows = wallaroo.range_windows(wallaroo.seconds(10)).over(aggregations.Count())
    return plan_of(events().key_by(key_of).to(windows).map(shown).to_sink(SINK))


def in_sessions_with_late_events() -> Plan:
    windows = wallaroo.session_windows(wallaroo.seconds(2)).over(Summed)
    results, late = events().key_by(key_of).to(windows).with_late_events()
    return plan_of(results.map(shown).to_sink(SINK), late.to_sink(SINK))


def with_timers() -> Plan:
    return plan_of(events().key_by(key_of).to(seen).map(shown).to_sink(SINK))


def joined() -> Plan:
    keyed = events().key_by(key_of)
    both = keyed.join(
        events("more").key_by(key_of),
        lambda left, right: (left, right),
        within=wallaroo.seconds(3),
    )
    return plan_of(both.map(shown).to_sink(SINK))


def joined_latest() -> Plan:
    keyed = events().key_by(key_of)
    both = keyed.join_latest(events("more").key_by(key_of), lambda left, right: (left, right))
    return plan_of(both.map(shown).to_sink(SINK))


PLANS = [
    in_windows,
    in_windows_pre_aggregated_before,
    in_sessions_with_late_events,
    with_timers,
    joined,
    joined_latest,
]


def batches(runner: LocalRunner, sources: int, count: int) -> Iterator[list[list[Input]]]:
    for batch in range(3):
        inputs = [
            Input(
                source,
                b"".join(
                    runner.frames(source, f"k{number % 7} {20 * batch + number % 19}".encode())
                    for number in range(count)
                ),
                5,
            )
            for source in range(sources)
        ]
        yield [inputs, []]
    yield [[], []]


def outputs_of(plan: Plan, count: int) -> Any:
    runner = LocalRunner(plan)
    results = []
    for inputs in batches(runner, len(plan.sources), count):
        result = runner.run_batch(inputs, 2, is_final=not any(inputs))
        runner.commit(result)
        results.append((result.outputs, result.changes))
    return results


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> list[StageSample]:
    """Let every block and every run of frames be sampled, and the end of every batch."""
    found: list[StageSample] = []
    feed_frames = Level.feed_frames
    feed_block = Level.feed_block
    end_batch = Level.end_batch
    monkeypatch.setattr(Level, "__init__", functools.partialmethod(Level.__init__, clock=CLOCK))
    inside: list[bool] = []

    def frames(self: Level, source: int, some: bytes, receipt_ms: int, *of: Any) -> int:
        if inside:
            return feed_frames(self, source, some, receipt_ms, *of)
        inside.append(True)
        number, samples = self.sample(source, some, receipt_ms, CLOCK, *of)
        inside.clear()
        found.extend(samples)
        return number

    def block(self: Level, some: Any) -> None:
        if inside:
            feed_block(self, some)
            return
        inside.append(True)
        found.extend(self.sample_block(some, CLOCK))
        inside.clear()

    def end(self: Level) -> None:
        end_batch(self)
        found.extend(self.end_samples)

    monkeypatch.setattr(Level, "feed_frames", frames)
    monkeypatch.setattr(Level, "feed_block", block)
    monkeypatch.setattr(Level, "end_batch", end)
    return found


@pytest.mark.parametrize("build", PLANS)
@pytest.mark.parametrize("count", [1, 60, 3 * EVENTS_MAX])
def test_a_sampled_run_has_the_results_of_one_that_is_not(
    build: Any, count: int, request: pytest.FixtureRequest
) -> None:
    plan = build()
    expected = outputs_of(plan, count)
    samples = request.getfixturevalue("samples")

    assert outputs_of(plan, count) == expected
    fed = {stage.id for stage in plan.stages if stage.steps and stage.level == 1}
    assert {sample.stage for sample in samples} & fed


def totals(samples: list[StageSample], stage: int) -> dict[str, tuple[int, int]]:
    events: Counter[str] = Counter()
    nanoseconds: Counter[str] = Counter()
    for sample in samples:
        if sample.stage == stage:
            for step in sample.steps:
                events[step.step] += step.events
                nanoseconds[step.step] += step.nanoseconds
    return {step: (events[step], nanoseconds[step]) for step in events}


def test_windows_and_what_follows_them_have_their_own_time(samples: list[StageSample]) -> None:
    """Given windows that fire as the watermark passes, then firing is the time of the windows."""
    plan = in_windows()
    runner = LocalRunner(plan)
    lines = [f"k{number % 7} {number // 5}".encode() for number in range(70)]
    frames = b"".join(runner.frames(0, line) for line in lines)

    result = runner.run_batch([[Input(0, frames, 5)]], 1)

    fired = len(result.outputs[0])
    assert fired == 7
    source, windows = (stage.id for stage in plan.stages)
    read = totals(samples, source)
    assert read["decode"] == (70, 70 * 100)
    assert read[plan.stages[source].steps[0].step_name] == (70, 70 * 5)
    assert read["key_of"] == (70, 70 * 10)
    found = totals(samples, windows)
    assert found["summed"] == (70, 70 * 200 + fired * 1000)
    assert found["shown"] == (fired, fired * 70)
    assert found["encode"] == (fired, fired * 30)


def test_many_windows_that_fire_at_once_are_scaled_from_the_first(
    samples: list[StageSample],
) -> None:
    """Given more results than a sample measures, then their number is estimated by time."""
    plan = in_windows()
    runner = LocalRunner(plan)
    keys = 4 * EVENTS_MAX
    lines = [*(f"k{number} 1".encode() for number in range(keys)), b"last 99"]
    frames = b"".join(runner.frames(0, line) for line in lines)

    runner.run_batch([[Input(0, frames, 5)]], 1)

    fired, took_ns = totals(samples, plan.stages[-1].id)["shown"]
    assert fired == pytest.approx(keys, rel=0.02)
    assert took_ns == pytest.approx(keys * 70, rel=0.02)


def test_keys_of_a_stage_with_windows_are_counted(samples: list[StageSample]) -> None:
    plan = in_windows()
    runner = LocalRunner(plan)
    frames = b"".join(runner.frames(0, line) for line in [b"hot 1"] * 9 + [b"cold 1"])

    runner.run_batch([[Input(0, frames, 5)]], 1)

    (sample,) = [each for each in samples if each.keys]
    assert sample.keys == (("hot", 9), ("cold", 1))
    assert sample.slow_keys[0][0] == "hot"


def test_a_batch_that_is_not_sampled_has_no_relay() -> None:
    """Given a level without a clock, then its operators call the next steps directly."""
    level = Level(in_windows(), 1, 0, 1)
    assert not any(built.relays for built in level._stages.built.values())
