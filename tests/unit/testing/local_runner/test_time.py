"""Time in an application under test: extractors, what is too far ahead, expiry, and what is
refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.shapes import Count, build
from tests.conformance.apps.steps import by_first_word, pass_on, sink, source
from wallaroo.aggregations import Count as Counted
from wallaroo.engine.operators.timer_state import EXPIRED_MIN
from wallaroo.engine.time.timers import REPEATED_MAX
from wallaroo.errors import UserCodeError, WallarooParameterError
from wallaroo.steps.times import as_nanoseconds
from wallaroo.testing import LocalApplication, VirtualClock, run_local

NOWHERE = Path("/nowhere")
SECOND = wallaroo.seconds(1)
YEAR = 365 * 24 * 3600


@wallaroo.decoder
def payload(raw: bytes) -> str:
    return raw.decode()


@wallaroo.computation("as text")
def as_text(number: int) -> str:
    return str(number)


def second_word(event: str) -> float:
    return float(event.split()[1])


@wallaroo.state_computation("count", state=Count)
def count(event: str, own: Count, context: wallaroo.Context) -> str:
    own.count += 1
    return f"{event} {own.count} {context.event_time // SECOND}"


def gone(own: Count, context: wallaroo.Context) -> str:
    return f"{context.key} gone after {own.count} at {context.event_time / SECOND:g}"


@wallaroo.state_computation(
    "kept a minute", state=Count, ttl=wallaroo.minutes(1), ttl_time="event", on_expire=gone
)
def kept_a_minute(event: str, own: Count) -> str:
    own.count += 1
    return f"{event} {own.count}"


@wallaroo.state_computation("kept by the clock", state=Count, ttl=wallaroo.minutes(1))
def kept_by_clock(event: str, own: Count) -> str:
    own.count += 1
    return f"{event} {own.count}"


@wallaroo.state_computation("sets a timer", state=Count)
def sets_a_timer(event: str, own: Count, context: wallaroo.Context) -> None:
    set_for_it(context)


def set_for_it(context: wallaroo.Context) -> None:
    context.set_timer("x", 0)


@wallaroo.state_computation("reads time", state=Count)
def reads_time(event: str, own: Count, context: wallaroo.Context) -> str:
    return f"{event} {time_in(context)}"


def time_in(context: wallaroo.Context) -> int:
    return context.event_time


def application(step: Any, **event_time: Any) -> wallaroo.Application:
    timed = source(NOWHERE).with_event_time(second_word, allow_before_1980=True, **event_time)
    return build("timed", timed.key_by(by_first_word).to(step).to_sink(sink(NOWHERE)))


def texts(outputs: dict[str, list[bytes]]) -> list[str]:
    return [output.decode().strip() for some in outputs.values() for output in some]


@pytest.mark.parametrize(
    "given", [1.5, 1_500_000_000, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)]
)
def test_a_time_is_a_datetime_or_seconds_or_nanoseconds(given: Any) -> None:
    assert as_nanoseconds(given) == 1_500_000_000


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (datetime(2026, 1, 1), "without time zone"),  # noqa: DTZ001  # that is what is refused
        (True, "not a bool"),
        ("12:00", r"not str: for one in ISO 8601, datetime\.fromisoformat\(text\)"),
        (float("nan"), "nan is not a time"),
    ],
)
def test_what_is_no_time_is_refused(given: Any, what: str) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        as_nanoseconds(given)


def test_an_event_from_next_year_is_counted_and_moves_no_watermark() -> None:
    running = LocalApplication(application(count), clock=VirtualClock(100 * SECOND))
    running.send("in", b"a 99", b"a %d" % YEAR, b"a 100")

    assert texts(running.batch()) == ["a 99 1 99", "a 100 2 100"]
    assert running.watermark == 100 * SECOND
    assert sum(running.result().errors.values()) == 1


def test_an_extractor_that_raises_stops_the_run_with_its_place() -> None:
    with pytest.raises(wallaroo.UserCodeError, match=r"event time at test_time\.py"):
        run_local(application(count), {"in": [b"a"]})


def test_state_expires_by_event_time_wherever_the_input_is_cut() -> None:
    lines = [b"a 0", b"b 10", b"b 65", b"a 66", b"b 70", b"b 200", b"a 201"]
    expected = ["a gone after 1 at 60", "a 66 1", "a gone after 1 at 126", "a 201 1"]
    for batches in (1, 3, 7):
        done = run_local(application(kept_a_minute), {"in": lines}, batches=batches, tasks=2)
        found = [line for line in done.text.splitlines() if line[0] == "a"]
        assert found == ["a 0 1", *expected]


def ended(own: Count, context: wallaroo.Context) -> str:
    return f"{context.key} ended after {own.count}"


@wallaroo.state_computation(
    "kept five seconds", state=Count, ttl=5 * SECOND, ttl_time="event", on_expire=gone
)
def kept_five_seconds(event: str, own: Count, context: wallaroo.Context) -> None:
    own.count += 1
    if event.endswith("timer"):
        context.set_timer("after", context.event_time + 6 * SECOND)
        context.set_timer("before", context.event_time + 4 * SECOND)


kept_five_seconds.on_end(ended)


@kept_five_seconds.on_timer
def kept_timer(own: Count, context: wallaroo.Context, name: str) -> str:
    return f"{context.key} {name} {own.count} at {context.event_time / SECOND:g}"


def expired_or_ended(lines: list[bytes], batches: int, tasks: int = 2) -> list[str]:
    done = run_local(application(kept_five_seconds), {"in": lines}, batches=batches, tasks=tasks)
    return done.text.splitlines()


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_whether_state_expires_or_ends_does_not_depend_on_cuts(batches: int) -> None:
    lines = [b"a 1", b"b 100", b"b 101", b"c 101"]

    found = expired_or_ended(lines, batches)

    assert found[0] == "a gone after 1 at 6"
    assert sorted(found[1:]) == ["b ended after 2", "c ended after 1"]


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_timers_and_expiry_of_a_key_come_in_order_of_time(batches: int) -> None:
    lines = [b"a 1 timer", b"b 50", b"a 100"]

    found = [line for line in expired_or_ended(lines, batches) if line[0] == "a"]

    assert found == ["a before 1 at 5", "a gone after 1 at 6", "a after 0 at 7", "a ended after 1"]


@pytest.mark.parametrize("batches", [1, 3])
def test_all_keys_that_expire_have_their_outputs_before_what_comes_later(batches: int) -> None:
    count = 2 * EXPIRED_MIN
    lines = [f"k{number} {number % 3}".encode() for number in range(count)]

    found = expired_or_ended([*lines, b"b 50", b"b 51"], batches)

    assert sum(" gone " in line for line in found) == count


def test_state_expires_by_the_clock_without_input_and_leaves_nothing() -> None:
    running = LocalApplication(application(kept_by_clock), clock=VirtualClock(100 * SECOND))
    running.send("in", b"a 1", b"b 1")
    running.batch()
    running.idle(30)
    running.send("in", b"b 2")
    running.batch()
    running.idle(31)
    assert set(running.result().state("kept by the clock")) == {"b"}

    running.idle(31)

    assert running.result().state("kept by the clock") == {}
    assert all(not entries for entries in running._runner.entries.values())


@pytest.mark.parametrize("spans", [(8, 2), (10,)])
@pytest.mark.parametrize("has_on_expire", [False, True])
def test_timers_and_expiry_by_the_clock_come_in_order_however_batches_are_cut(
    has_on_expire: bool, spans: tuple[int, ...]
) -> None:
    def gone(own: Count, context: wallaroo.Context) -> str:
        return f"gone {own.count}"

    @wallaroo.state_computation(
        "timed", state=Count, ttl=7 * SECOND, on_expire=gone if has_on_expire else None
    )
    def timed(event: str, own: Count, context: wallaroo.Context) -> None:
        own.count += 1
        context.set_timer_after("before", 7 * SECOND, processing=True)
        context.set_timer_after("after", 9 * SECOND, processing=True)

    @timed.on_timer
    def fired(own: Count, context: wallaroo.Context, name: str) -> str:
        return f"{name} {own.count}"

    running = LocalApplication(application(timed), clock=VirtualClock(100 * SECOND))
    running.send("in", b"a 1")
    running.batch()
    for span in spans:
        running.idle(span)

    outputs = [output.decode().strip() for output in running.result().outputs]
    assert outputs == ["before 1", *["gone 1"] * has_on_expire, "after 0"]


def of_timers(
    span: int, other: str, processing: bool, times: int, on_error: str = "stop"
) -> LocalApplication:
    """Each timer of a key sets the other one, or itself, a span after its own time, so often."""

    @wallaroo.state_computation("timers", state=Count, on_error=on_error)
    def timers(event: str, own: Count, context: wallaroo.Context) -> None:
        context.set_timer_after("a", SECOND, processing=processing)

    @timers.on_timer
    def again(own: Count, context: wallaroo.Context, name: str) -> str:
        own.count += 1
        if own.count < times:
            context.set_timer_after("a" if name == other else other, span, processing=processing)
        return f"{context.key} {own.count}"

    running = LocalApplication(application(timers), clock=VirtualClock(0))
    running.send("in", b"a 1", b"b 1", b"c 100")
    return running


@pytest.mark.parametrize("processing", [False, True])
@pytest.mark.parametrize("other", ["a", "b"])
def test_timers_that_set_each_other_for_their_own_time_without_end_are_refused(
    processing: bool, other: str
) -> None:
    problem = f"would be called at once, like {REPEATED_MAX:,} before it .* for a later time"

    running = of_timers(0, other, processing, REPEATED_MAX + 2)

    with pytest.raises(UserCodeError, match=problem):
        (running.batch(), running.idle(2))


def test_a_timer_that_may_not_be_set_again_is_the_one_that_fails() -> None:
    running = of_timers(0, "a", False, REPEATED_MAX + 2, on_error="skip")

    assert len(texts(running.batch())) == 2 * REPEATED_MAX
    assert running.result().errors == {"timers": 2}


@pytest.mark.parametrize(("span", "times"), [(0, REPEATED_MAX), (1000, REPEATED_MAX + 2)])
def test_timers_are_called_while_time_passes_or_few_are_due_at_once(span: int, times: int) -> None:
    assert len(texts(of_timers(span, "a", False, times).batch())) == 2 * times


def test_a_timer_without_a_function_for_it_is_explained() -> None:
    with pytest.raises(wallaroo.UserCodeError, match=r"@your_step\.on_timer"):
        run_local(application(sets_a_timer), {"in": [b"a 1"]})


def test_event_time_without_its_declaration_is_explained() -> None:
    plain = source(NOWHERE).key_by(by_first_word)
    with pytest.raises(wallaroo.PipelineError, match="with_event_time"):
        build("plain", plain.to(count).to_sink(sink(NOWHERE)))
    with pytest.raises(wallaroo.UserCodeError, match="with_event_time"):
        run_local(build("plain", plain.to(reads_time).to_sink(sink(NOWHERE))), {"in": [b"a 1"]})


def test_event_time_after_a_shuffle_or_given_twice_is_refused() -> None:
    after = (
        source(NOWHERE)
        .key_by(by_first_word)
        .with_event_time(second_word, allow_before_1980=True)
        .to(count)
    )
    with pytest.raises(wallaroo.PipelineError, match="before the first key_by"):
        build("after", after.to_sink(sink(NOWHERE)))
    twice = (
        source(NOWHERE)
        .with_event_time(second_word, allow_before_1980=True)
        .to(pass_on)
        .with_event_time(second_word, allow_before_1980=True)
    )
    with pytest.raises(wallaroo.PipelineError, match="with_event_time\\(\\) once"):
        build("twice", twice.key_by(by_first_word).to(count).to_sink(sink(NOWHERE)))


@pytest.mark.parametrize("option", ["delay", "idle_after", "max_ahead"])
def test_a_span_is_a_span(option: str) -> None:
    with pytest.raises(wallaroo.PipelineError, match=f"{option}=-1 is not a span of time"):
        source(NOWHERE).with_event_time(second_word, allow_before_1980=True, **{option: -1})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"ttl": 0}, "ttl=0 is not a span"),
        ({"ttl": SECOND, "ttl_time": "x"}, "is unknown"),
        ({"on_expire": gone}, "nothing ever expires"),
    ],
)
def test_expiry_is_declared_in_full(options: Any, what: str) -> None:
    with pytest.raises(wallaroo.PipelineError, match=what):
        wallaroo.state_computation("x", state=Count, **options)


def test_as_many_keys_expire_as_there_was_time_for_since_the_batch_before() -> None:
    running = LocalApplication(application(kept_by_clock), tasks=1)
    running.clock.now_ns = wallaroo.seconds(100)
    running.send("in", *(f"k{number} {number}".encode() for number in range(EXPIRED_MIN + 100)))
    running.batch()

    running.idle(60.0)

    assert running.result().state("kept by the clock") == {}


def kafka(**time: Any) -> LocalApplication:
    config = wallaroo.KafkaSourceConfig("in", "topic", "127.0.0.1:9092", payload)
    timed = wallaroo.source("kafka", config).with_event_time(**time).key_by(by_first_word)
    counts = timed.to(wallaroo.range_windows(wallaroo.seconds(10)).over(Counted()))
    return LocalApplication(build("timed", counts.to(as_text).to_sink(sink(NOWHERE))))


def test_a_record_of_kafka_brings_its_time_along() -> None:
    running = kafka(delay=wallaroo.seconds(1))
    running.clock.now_ns = wallaroo.seconds(100)
    running.send("in", b"a", at_ns=wallaroo.seconds(3), partition="topic-0")
    running.send("in", b"a", at_ns=wallaroo.seconds(4), partition="topic-1")
    running.send("in", b"a", at_ns=wallaroo.seconds(12), partition="topic-0")
    assert texts(running.batch()) == []
    assert running.watermark == wallaroo.seconds(3)

    running.send("in", b"a", at_ns=wallaroo.seconds(13), partition="topic-1")
    assert texts(running.batch()) == ["2"]
    assert running.watermark == wallaroo.seconds(11)


def test_events_of_today_are_read_after_idle_time_on_a_clock_that_was_never_set() -> None:
    running = kafka()
    today = wallaroo.seconds(1_764_000_000)
    running.send("in", b"a", at_ns=today)
    running.batch()
    running.idle(1)
    running.send("in", b"a", at_ns=today + wallaroo.seconds(1))
    running.batch()
    assert running.watermark == today + wallaroo.seconds(1)
    assert running.result().errors == {}


def test_a_record_from_next_year_is_left_out_and_moves_no_watermark() -> None:
    running = kafka()
    running.clock.now_ns = wallaroo.seconds(100)
    running.send("in", b"a", at_ns=wallaroo.seconds(3))
    running.send("in", b"a", at_ns=wallaroo.seconds(365 * 24 * 3600))
    running.send("in", b"a", at_ns=wallaroo.seconds(4))
    running.batch()
    assert running.watermark == wallaroo.seconds(4)
    assert list(running.result().errors.values()) == [1]


@pytest.mark.parametrize("cuts", [[3], [1, 2], [2, 1], [1, 1, 1]])
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_where_a_new_connection_begins_does_not_depend_on_cuts(cuts: list[int], tasks: int) -> None:
    running = kafka()
    for at, partition in [(30, "1"), (5, "2"), (8, "2")]:
        running.send("in", b"a", at_ns=wallaroo.seconds(at), partition=partition)
    for cut in cuts:
        running.batch(cut, tasks)
    running.end()
    assert texts(running.result().by_sink) == ["1"]  # connection 2 is late: 1 was at 30 before it


def test_a_connection_that_is_closed_holds_time_back_no_longer() -> None:
    running = LocalApplication(application(count))
    running.send("in", b"a 20", partition="2")
    running.send("in", b"a 30", partition="1")
    running.batch()
    assert running.watermark == wallaroo.seconds(20)

    running.close("in", "2")
    running.batch()
    assert running.watermark == wallaroo.seconds(30)


@pytest.mark.parametrize("cuts", [[4], [2, 2], [3, 1], [1, 1, 1, 1]])
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_new_connection_does_not_begin_at_one_that_has_closed(
    cuts: list[int], tasks: int
) -> None:
    running = kafka()
    running.send("in", b"a", at_ns=wallaroo.seconds(12), partition="1")
    running.send("in", b"a", at_ns=wallaroo.seconds(35), partition="2")
    running.close("in", "1")
    running.send("in", b"a", at_ns=wallaroo.seconds(36), partition="2")
    running.send("in", b"a", at_ns=wallaroo.seconds(13), partition="3")
    for cut in cuts:
        running.batch(cut, tasks)
    running.end()
    assert running.result().dropped == {"count": {"late": 1}}


def test_a_connection_that_was_far_ahead_counts_no_more_once_others_go_on_without_it() -> None:
    running = LocalApplication(application(count))
    running.send("in", b"a 20", partition="2")
    running.send("in", b"a 50", partition="1")
    running.close("in", "1")
    running.send("in", b"a 30", partition="2")
    running.close("in", "2")
    running.batch()
    assert running.watermark == wallaroo.seconds(30)


@pytest.mark.parametrize("order", ["12", "21"])
@pytest.mark.parametrize("is_cut", [True, False])
def test_when_all_connections_close_the_newest_counts_in_any_order(
    order: str, is_cut: bool
) -> None:
    running = LocalApplication(application(count))
    running.send("in", b"a 30", partition="2")
    running.send("in", b"a 50", partition="1")
    for partition in order:
        running.close("in", partition)
        if is_cut:
            running.batch()
    running.batch()
    assert running.watermark == wallaroo.seconds(50)


def test_a_connection_that_was_closed_and_is_sent_something_is_a_new_one() -> None:
    running = LocalApplication(application(count))
    running.send("in", b"a 20", partition="1")
    running.send("in", b"a 30", partition="2")
    running.close("in", "1")
    running.send("in", b"a 40", partition="1")
    running.batch()
    assert running.watermark == wallaroo.seconds(30)


def of_outages() -> LocalApplication:
    """Sixty events a second apart, by the clock too, of a source that is idle after 20 seconds."""
    timed = source(NOWHERE).with_event_time(
        second_word,
        allow_before_1980=True,
        delay=wallaroo.seconds(10),
        idle_after=wallaroo.seconds(20),
    )
    counts = wallaroo.session_windows(gap=wallaroo.seconds(60)).over(Counted(), name="sessions")
    application = build(
        "outages", timed.key_by(by_first_word).to(counts).to(as_text).to_sink(sink(NOWHERE))
    )
    running = LocalApplication(application, clock=VirtualClock(5000 * SECOND))
    running.send("in", *(f"a {number}".encode() for number in range(1000, 1060)))
    running.batch()
    return running


def test_what_waited_during_an_outage_is_in_time() -> None:
    running = of_outages()
    running.outage(150)
    assert running.watermark == 1049 * SECOND
    running.send("in", *(f"a {number}".encode() for number in range(1060, 1210)))
    running.batch()
    running.idle(100)

    assert running.result().outputs == [b"210"]


def test_time_runs_on_where_sources_are_connected_and_silent() -> None:
    running = of_outages()
    running.idle(20 + 60 + 10)

    assert running.result().outputs == [b"60"]


def test_an_outage_of_a_source_that_is_not_there_is_refused() -> None:
    with pytest.raises(WallarooParameterError, match="'kafka': there is no such source"):
        of_outages().outage(1, "kafka")


@wallaroo.state_computation("timed by name", state=Count)
def timed_by_name(event: str, own: Count, context: wallaroo.Context) -> None:
    """Do what the words after the time say, in their order."""
    for word in event.split()[2:]:
        if word == "clock":
            context.set_timer("t", context.processing_time + 10 * SECOND, processing=True)
        elif word == "event":
            context.set_timer("t", context.event_time + 10 * SECOND)
        elif word == "cancel":
            context.cancel_timer("t")
        elif word == "cancel-clock":
            context.cancel_timer("t", processing=True)
        elif word == "after":
            context.set_timer_after("t", timedelta(seconds=10))
        elif word == "after-clock":
            context.set_timer_after("t", 10 * SECOND, processing=True)
        else:
            context.set_timer_after("t", int(word))


@timed_by_name.on_timer
def fired(own: Count, context: wallaroo.Context, name: str) -> str:
    return f"{context.event_time // SECOND} {context.processing_time // SECOND}"


def fired_after(*words: str) -> list[str]:
    """Return what fires, with event and clock time, of events at 100 s with these words."""
    running = LocalApplication(application(timed_by_name), clock=VirtualClock(100 * SECOND))
    for each in words:
        running.send("in", b"a 100 " + each.encode())
        running.batch()
    running.idle(20)
    by_clock = texts(running.result().by_sink)
    running.send("in", b"b 120 cancel")
    running.batch()
    return [*by_clock, *texts(running.result().by_sink)[len(by_clock) :]]


BY_CLOCK = ["100 120"]
BY_EVENT_TIME = ["110 120"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("clock", BY_CLOCK),
        ("event", BY_EVENT_TIME),
        ("clock cancel", []),
        ("event cancel-clock", []),
        ("clock event", BY_EVENT_TIME),
        ("event clock", BY_CLOCK),
        ("after", BY_EVENT_TIME),
        ("after-clock", BY_CLOCK),
        ("clock after", BY_EVENT_TIME),
        ("event clock event cancel", []),
    ],
)
@pytest.mark.parametrize("is_one_event", [True, False])
def test_a_name_is_one_timer_in_event_time_or_by_the_clock(
    words: str, expected: list[str], is_one_event: bool
) -> None:
    assert fired_after(*([words] if is_one_event else words.split())) == expected


@pytest.mark.parametrize(
    ("span", "what"), [("-1", "is not a span of time"), ("5", "is 5 nanoseconds")]
)
def test_a_timer_after_no_span_is_refused(span: str, what: str) -> None:
    with pytest.raises(wallaroo.UserCodeError, match=what):
        fired_after(span)
