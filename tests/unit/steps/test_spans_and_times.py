"""Spans and times that users write: what is accepted, and what a mistaken one is answered."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wallaroo
from tests.conformance.apps.steps import by_first_word, pass_on, sink, source
from wallaroo.aggregations import Count
from wallaroo.errors import PipelineError
from wallaroo.steps.times import EARLIEST_NS, no_time
from wallaroo.testing import run_local

NOWHERE = Path("/nowhere")
NOW_S = 1_700_000_000
keyed = source(NOWHERE).key_by(by_first_word)


def with_ttl(span: Any) -> Any:
    @wallaroo.state_computation("kept", state=list, ttl=span)
    def kept(event: str, state: list[str]) -> str:
        return event

    return kept


# each takes a span, and returns what has it in nanoseconds
TAKERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], int]]] = {
    "range": (
        lambda span: keyed.to(wallaroo.range_windows(span).over(Count())),
        lambda made: made.node.step.spec.range_ns,
    ),
    "slide": (
        lambda span: keyed.to(
            wallaroo.range_windows(wallaroo.hours(1)).with_slide(span).over(Count())
        ),
        lambda made: made.node.step.spec.slide_ns,
    ),
    "delay of windows": (
        lambda span: keyed.to(
            wallaroo.range_windows(wallaroo.hours(1)).with_delay(span).over(Count())
        ),
        lambda made: made.node.step.spec.delay_ns,
    ),
    "offset": (
        lambda span: keyed.to(
            wallaroo.range_windows(wallaroo.hours(1)).with_offset(span).over(Count())
        ),
        lambda made: made.node.step.spec.offset_ns,
    ),
    "early results": (
        lambda span: keyed.to(
            wallaroo.range_windows(wallaroo.hours(1)).with_early_results(span).over(Count())
        ),
        lambda made: made.node.step.spec.early_ns,
    ),
    "lateness": (
        lambda span: keyed.to(
            wallaroo.range_windows(wallaroo.hours(1)).with_allowed_lateness(span).over(Count())
        ),
        lambda made: made.node.step.spec.lateness_ns,
    ),
    "corrections": (
        lambda span: keyed.to(
            wallaroo.range_windows(wallaroo.hours(1))
            .with_allowed_lateness(wallaroo.hours(1), span)
            .over(Count())
        ),
        lambda made: made.node.step.spec.corrected_ns,
    ),
    "timeout": (
        lambda span: keyed.to(wallaroo.count_windows(2).with_timeout(span).over(Count())),
        lambda made: made.node.step.spec.timeout_ns,
    ),
    "gap": (
        lambda span: keyed.to(wallaroo.session_windows(span).over(Count())),
        lambda made: made.node.step.spec.gap_ns,
    ),
    "delay of sessions": (
        lambda span: keyed.to(
            wallaroo.session_windows(wallaroo.hours(1)).with_delay(span).over(Count())
        ),
        lambda made: made.node.step.spec.delay_ns,
    ),
    "join": (
        lambda span: keyed.join(keyed, within=span),
        lambda made: made.node.step.spec.within_ns,
    ),
    "max_age": (
        lambda span: keyed.join_latest(keyed, max_age=span),
        lambda made: made.node.step.spec.within_ns,
    ),
    "dedupe": (
        lambda span: keyed.dedupe(within=span),
        lambda made: made.node.step.spec.within_ns,
    ),
    "batch": (
        lambda span: keyed.batch(2, within=span),
        lambda made: made.node.step.function.within_ns,
    ),
    "delay": (
        lambda span: source(NOWHERE).with_event_time(delay=span),
        lambda made: made.node.step.delay_ns,
    ),
    "idle_after": (
        lambda span: source(NOWHERE).with_event_time(idle_after=span),
        lambda made: made.node.step.idle_after_ns,
    ),
    "max_ahead": (
        lambda span: source(NOWHERE).with_event_time(max_ahead=span),
        lambda made: made.node.step.max_ahead_ns,
    ),
    "ttl": (
        lambda span: keyed.to(with_ttl(span)),
        lambda made: made.node.step.timing.ttl_ns,
    ),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_every_span_may_be_a_timedelta(taker: str) -> None:
    make, span_of = TAKERS[taker]
    made = make(timedelta(milliseconds=1500))
    assert span_of(made) == wallaroo.seconds(1.5)
    assert wallaroo.build_application("app", made.to_sink(sink(NOWHERE))).name == "app"


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("span", [1, 999])
def test_a_number_below_a_microsecond_is_refused_unless_it_is_said_to_be_nanoseconds(
    taker: str, span: int
) -> None:
    make, span_of = TAKERS[taker]
    with pytest.raises(PipelineError, match=rf"is {span} nanoseconds?\. Write wallaroo\.seconds\("):
        wallaroo.build_application("app", make(span).to_sink(sink(NOWHERE)))
    assert span_of(make(wallaroo.nanoseconds(span))) == span
    wallaroo.build_application("app", make(wallaroo.nanoseconds(span)).to_sink(sink(NOWHERE)))
    assert span_of(make(1000)) == 1000


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("span", [-1, 1.5, True, "5", timedelta(seconds=-1)])
def test_anything_else_is_no_span(taker: str, span: Any) -> None:
    make, _ = TAKERS[taker]
    with pytest.raises(
        PipelineError, match=r"is not a span of time\. Write it as wallaroo\.seconds"
    ):
        wallaroo.build_application("app", make(span).to_sink(sink(NOWHERE)))


def test_a_marked_number_of_nanoseconds_is_stored_as_a_plain_one() -> None:
    assert type(pickle.loads(pickle.dumps(wallaroo.nanoseconds(5)))) is int


def run_with_time(given: Any, lines: list[bytes], **options: Any) -> Any:
    timed = source(NOWHERE).with_event_time(lambda event: given(event), **options)
    pipeline = timed.to(pass_on).to_sink(sink(NOWHERE))
    return run_local(wallaroo.build_application("timed", pipeline), {"in": lines})


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (NOW_S * 1000, "counts milliseconds, multiply it by 1_000_000: 2023-11-14 22:13:20"),
        (NOW_S, "counts seconds, multiply it by 1_000_000_000: 2023-11-14 22:13:20"),
        (NOW_S * 10**6, "counts microseconds, multiply it by 1_000: 2023-11-14 22:13:20"),
        (NOW_S * 1e3, "counts milliseconds, divide it by 1_000: 2023-11-14 22:13:20"),
        (NOW_S * 1e9 + 1e6, "counts nanoseconds, divide it by 1_000_000_000: 2023-11-14 22:13:20"),
        (datetime(1979, 12, 31, tzinfo=UTC), r"1979-12-31 00:00:00\+00:00 is before 1980"),
        (EARLIEST_NS - 1, "1979-12-31 23:59:59 in nanoseconds"),
        (-(1 << 63), "is not a time in nanoseconds since 1970"),
        (datetime(1800, 1, 1, tzinfo=UTC), "outside of the years 1824 to 2115"),
    ],
)
def test_a_time_in_another_unit_is_refused_with_the_factor_that_is_missing(
    given: Any, answer: str
) -> None:
    with pytest.raises(wallaroo.UserCodeError, match=answer):
        run_with_time(lambda event: given, [b"a"])


@pytest.mark.parametrize(
    "given",
    [datetime(2117, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), 1 << 63, 253402214400.0],
)
@pytest.mark.parametrize("max_ahead", [wallaroo.hours(24), timedelta(days=365 * 200)])
def test_a_time_in_the_far_future_is_one_that_is_too_far_ahead(given: Any, max_ahead: Any) -> None:
    times = iter([NOW_S * 1e0, given, NOW_S * 1e0])

    done = run_with_time(lambda event: next(times), [b"a", b"far", b"b"], max_ahead=max_ahead)

    assert done.text == "a\nb\n"
    assert sum(done.errors.values()) == 1


@pytest.mark.parametrize(
    "given", [EARLIEST_NS, NOW_S * 1e0, datetime(1980, 1, 1, tzinfo=UTC), np.int64(EARLIEST_NS)]
)
def test_a_time_from_1980_on_is_one(given: Any) -> None:
    assert run_with_time(lambda event: given, [b"a"]).text == "a\n"


@pytest.mark.parametrize("given", [0, 7, -5.0, datetime(1930, 1, 1, tzinfo=UTC)])
def test_earlier_times_are_accepted_if_the_application_allows_them(given: Any) -> None:
    assert run_with_time(lambda event: given, [b"a"], allow_before_1980=True).text == "a\n"


def test_a_refused_time_follows_the_policy_of_its_step() -> None:
    done = run_with_time(
        lambda event: NOW_S * (1e0 if event == "good" else 1),
        [b"bad", b"good"],
        on_error="skip",
    )
    assert done.text == "good\n"
    assert sum(done.errors.values()) == 1


def test_no_unit_is_guessed_of_a_number_that_is_none_of_today_s() -> None:
    assert "multiply" not in str(no_time(3, 3))
    assert "multiply" not in str(no_time(3_000_000_000, 3.0))
