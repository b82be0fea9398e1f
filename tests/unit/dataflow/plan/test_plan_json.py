"""What is kept of a plan beside a checkpoint, and which plans may continue from it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    Total,
    count,
    count_again,
    decode,
    encode,
    first_letter,
    last_letter,
    shout,
    tcp,
)
from wallaroo import sinks
from wallaroo.aggregations import Count, MaxBy, Mean, MinBy, Sum, TopN, combine_of
from wallaroo.connectors.file.sink import FileSinkConfig
from wallaroo.dataflow.plan.json import (
    Verdict,
    abandoned,
    compare,
    dumps,
    lasting,
    with_old_ids,
)
from wallaroo.dataflow.plan.model import Plan


class OtherTotal(Total):
    pass


def plan(pipeline: Any, name: str = "app", *more: Any) -> Plan:
    return wallaroo.build_application(name, pipeline, *more).plan


def keyed(name: str = "in", port: int = 0) -> Any:
    return tcp(name, port).key_by(first_letter)


BASE = plan(keyed().to(count).to_sink(SINK))


def against(pipeline: Any, name: str = "app") -> tuple[Verdict, str]:
    found = compare(dumps(BASE), dumps(plan(pipeline, name)))
    return found.verdict, " ".join(found.reasons)


def test_the_description_is_stable_json_without_addresses() -> None:
    there = plan(keyed(port=7010).to(count).to_sink(SINK))
    assert dumps(there) == dumps(BASE)
    described = json.loads(dumps(BASE))
    assert described["states"] == {
        "count": {"class": f"{Total.__module__}.Total", "keys": ["first_letter"]}
    }
    assert described["steps"] == {"count": "state_computation"}


def test_an_equal_plan_is_compatible() -> None:
    assert against(keyed().to(count).to_sink(SINK)) == (Verdict.SAME, "")


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (keyed().to(shout).to(count).to_sink(SINK), "Step 'shout' is new."),
        (keyed().to(count).to(count_again).to_sink(SINK), "Step 'count again' is new."),
        (keyed().to(count).to_sinks([SINK, SINK]), "Sink 'stdout-2' is new."),
        (
            tcp("in").merge(tcp("b")).key_by(first_letter).to(count).to_sink(SINK),
            "Source 'b' is new.",
        ),
        (keyed().merge(tcp("b").key_by(last_letter)).to(count).to_sink(SINK), "Source 'b' is new."),
        (keyed().to(count).collect().to_sink(SINK), "The same steps are laid out in other stages."),
    ],
)
def test_what_only_adds_is_compatible_with_new_steps(pipeline: Any, reason: str) -> None:
    assert against(pipeline) == (Verdict.CHANGED, reason)


def test_a_stateless_step_may_go() -> None:
    found = compare(dumps(plan(keyed().to(shout).to(count).to_sink(SINK))), dumps(BASE))
    assert (found.verdict, found.reasons) == (
        Verdict.CHANGED,
        ("Step 'shout' is gone; it kept nothing.",),
    )


def of_topics(*topics: str) -> str:
    config = wallaroo.KafkaSourceConfig("in", topics, "127.0.0.1", decode)
    return dumps(plan(wallaroo.source("in", config).key_by(first_letter).to(count).to_sink(SINK)))


@pytest.mark.parametrize(
    ("was", "now", "reasons"),
    [
        (
            ["a", "b"],
            ["a"],
            (
                "Source 'in' no longer reads topic 'b': where it was is kept, and it resumes there "
                "if it is put back.",
            ),
        ),
        (
            ["a"],
            ["b", "a"],
            (
                "Source 'in' reads topic 'b' now: from where this checkpoint left it, or else from "
                "its beginning.",
            ),
        ),
        (["a", "b"], ["b", "a"], ()),
    ],
)
def test_topics_that_a_source_reads_no_longer_or_now_are_named(
    was: list[str], now: list[str], reasons: tuple[str, ...]
) -> None:
    found = compare(of_topics(*was), of_topics(*now))

    assert found.verdict is (Verdict.CHANGED if reasons else Verdict.SAME)
    assert found.reasons == reasons


def test_a_plan_of_an_earlier_version_names_no_topics() -> None:
    earlier = json.loads(of_topics("a"))
    del earlier["sources"]["in"]["reads"]

    assert compare(json.dumps(earlier), of_topics("b")).verdict is Verdict.SAME


def timed(on_timer: Any = None, **options: Any) -> str:
    """A plan whose state step has timers or a ttl, as the options say."""
    step = wallaroo.state_computation("count", state=Total, **options)(count.function)
    if on_timer is not None:
        step.on_timer(on_timer)
    return dumps(plan(keyed().to(step).to_sink(SINK)))


def ring(state: Total, context: wallaroo.Context, name: str) -> None:
    raise AssertionError("never called")


@pytest.mark.parametrize(
    ("was", "now", "reason"),
    [
        ({}, {"ttl": wallaroo.hours(1)}, "has a ttl of 3600 s now: it counts from a key's next"),
        ({"ttl": wallaroo.hours(1)}, {}, "has no ttl any more: no state expires"),
        (
            {"ttl": wallaroo.seconds(9)},
            {"ttl": wallaroo.seconds(8)},
            "has a ttl of 8 s instead of 9 s",
        ),
        (
            {"ttl": wallaroo.seconds(9), "ttl_time": "event"},
            {"ttl": wallaroo.seconds(8)},
            "expired by event time and expires by the clock now",
        ),
        ({"on_timer": ring}, {}, "has no on_timer any more: timers that wait are never called"),
    ],
)
def test_other_timers_and_expiry_are_reported(
    was: dict[str, Any], now: dict[str, Any], reason: str
) -> None:
    found = compare(timed(**was), timed(**now))
    assert found.verdict is Verdict.CHANGED
    (only,) = found.reasons
    assert reason in only


def test_of_an_earlier_versions_expiry_nothing_is_known() -> None:
    earlier = json.loads(timed(ttl=wallaroo.hours(1)))
    del earlier["timing"]
    assert compare(json.dumps(earlier), timed(ttl=wallaroo.hours(2))).verdict is Verdict.SAME


def test_steps_without_a_name_may_move_to_other_lines() -> None:
    """Neither is new or gone: its name is its line."""

    def unnamed(line: int) -> str:
        pipeline = keyed().filter(lambda text: text, name=f"filter at app.py:{line}:7")
        return dumps(plan(pipeline.to(count).to_sink(SINK)))

    moved = ("Steps that are named after their line are on another one.",)
    found = compare(unnamed(4), unnamed(12))
    assert (found.verdict, found.reasons) == (Verdict.CHANGED, moved)
    assert compare(unnamed(4), dumps(BASE)).reasons == (
        "Step 'filter at app.py:4:7' is gone; it kept nothing.",
    )


def test_state_stays_if_its_key_without_a_name_moves_to_another_line() -> None:
    def keyed_at(line: int) -> str:
        key = wallaroo.key_extractor(f"key_by at app.py:{line}:7")(first_letter.function)
        return dumps(plan(tcp("in").key_by(key).to(count).to_sink(SINK)))

    found = compare(keyed_at(4), keyed_at(12))
    assert found.verdict is not Verdict.INCOMPATIBLE
    assert "was kept by" not in " ".join(found.reasons)
    assert compare(keyed_at(4), dumps(BASE)).verdict is Verdict.INCOMPATIBLE


def windows(aggregation: Any, length: int = 60) -> str:
    pipeline = tcp("in").with_event_time(len).key_by(first_letter)
    over = wallaroo.range_windows(wallaroo.seconds(length)).over(aggregation, name="w")
    return dumps(plan(pipeline.to(over).to_sink(SINK)))


def joined_over(aggregation: Any) -> str:
    left, right = (tcp(name).with_event_time(len).key_by(first_letter) for name in ("in", "b"))
    both = left.join(right, name="j", until=len, over=aggregation)
    return dumps(plan(both.to_sink(SINK)))


def is_long(text: str) -> bool:
    return len(text) > 9


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (
            windows(combine_of(n=Count(), total=Sum(len))),
            windows(combine_of(total=Sum(len), n=Count())),
            "'w' aggregated with combine_of(n=Count, total=Sum), now it does with combine_of("
            "total=Sum, n=Count): the accumulators in the checkpoint have the former's parts",
        ),
        (
            windows(combine_of(n=Count())),
            windows(combine_of(n=Count(), mean=Mean(len))),
            "now it does with combine_of(n=Count, mean=Mean)",
        ),
        (
            windows(Count().where(is_long)),
            windows(Sum(len).where(is_long)),
            "aggregated with Count.where(...), now it does with Sum.where(...)",
        ),
        (
            windows(combine_of(n=Count(), some=combine_of(m=Count()))),
            windows(combine_of(n=Count(), some=combine_of(m=Sum(len)))),
            "some=combine_of(m=Sum)",
        ),
        (joined_over(Count()), joined_over(Sum(len)), "'j' aggregated with Count, now it does"),
        (
            windows(MaxBy(len)),
            windows(MaxBy(len, ties=True)),
            "aggregated with MaxBy(ties=False), now it does with MaxBy(ties=True)",
        ),
        (windows(TopN(3, len)), windows(TopN(5, len)), "TopN(n=3), now it does with TopN(n=5)"),
        (
            windows(combine_of(m=MinBy(len))),
            windows(combine_of(m=MinBy(len, ties=True))),
            "now it does with combine_of(m=MinBy(ties=True))",
        ),
    ],
)
def test_accumulators_are_not_read_as_those_of_another_aggregation(
    was: str, now: str, words: str
) -> None:
    found = compare(was, now)

    assert found.verdict is Verdict.INCOMPATIBLE
    (reason,) = found.reasons
    assert words in reason
    assert "another name, and drop what is stored with --allow-incompatible" in reason
    assert abandoned(was, now) == json.loads(was)["states"].keys()
    assert compare(was, was).verdict is Verdict.SAME


def test_of_an_earlier_versions_accumulators_nothing_is_known() -> None:
    now = windows(combine_of(n=Count(), total=Sum(len)))
    earlier = json.loads(now)
    del earlier["states"]["w"]["accumulators"]
    assert compare(json.dumps(earlier), now).verdict is Verdict.SAME


def test_of_parameters_that_an_earlier_version_did_not_note_nothing_is_known() -> None:
    now = windows(combine_of(m=MaxBy(len, ties=True), top=TopN(3, len)))
    earlier = now.replace("(ties=True)", "").replace("(n=3)", "")
    assert earlier != now
    assert compare(earlier, now).verdict is Verdict.SAME


def without_aggregations(noted: str) -> str:
    """Return a plan as earlier versions noted it."""
    earlier = json.loads(noted)
    del earlier["states"]["w"]["aggregation"]
    return json.dumps(earlier)


class Own(Count):
    """An aggregation with parameters of its own: in attributes, one of them in a slot."""

    __slots__ = ("slot",)

    def __init__(self, slot: int = 1, **limits: Any):
        self.slot = slot
        self.limits = limits


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (Sum("v"), Sum("n"), "aggregated with Sum(column='v'), now it does with Sum(column='n'):"),
        (Mean(len), Mean(is_long), "Mean(of=len), now it does with Mean(of=is_long)"),
        (
            combine_of(a=Sum("v"), n=Count()),
            combine_of(a=Sum("n"), n=Count()),
            "combine_of(a=Sum(column='n'), n=Count())",
        ),
        (Count().where(len), Count().where(is_long), "Count().where(is_long)"),
        (TopN(3), TopN(3, len), "aggregated with TopN(n=3), now it does with TopN(n=3, by=len)"),
        (Own(1), Own(5), "Own(slot=5, limits={})"),
        (Own(at={2}), Own(at={5, 2}), "Own(slot=1, limits={'at': {2, 5}})"),
        (Own(to=b"a" * 99), Own(to=b"a" * 98), "... ("),
    ],
)
def test_another_column_or_argument_of_an_aggregation_is_reported(
    was: Any, now: Any, words: str
) -> None:
    """The accumulators are those of both: whether they may meet is the user's to say."""
    found = compare(windows(was), windows(now))

    assert found.verdict is Verdict.CHANGED
    (reason,) = found.reasons
    assert words in reason
    assert "give the step another name" in reason


def test_an_aggregation_with_the_same_arguments_is_not_reported() -> None:
    """The code of functions is not compared, nor what has no name."""
    same = [
        windows(Own(at={1, 2}, kept=[len], other=object(), by=lambda text: text[:1]))
        for _ in range(2)
    ]
    assert compare(*same).verdict is Verdict.SAME
    earlier = without_aggregations(windows(Sum("v")))
    assert compare(earlier, windows(Sum("n"))).verdict is Verdict.SAME


def test_times_that_are_gone_are_reported() -> None:
    def windows_of(pipeline: Any) -> str:
        over = wallaroo.range_windows(wallaroo.seconds(60)).over(Count(), name="w")
        return dumps(plan(pipeline.key_by(first_letter).to(over).to_sink(SINK)))

    found = compare(windows_of(tcp("in").with_event_time(len)), windows_of(tcp("in")))

    assert found.verdict is Verdict.CHANGED
    assert "kept by its times, and events have others now" in " ".join(found.reasons)


def test_other_windows_are_reported_in_words() -> None:
    (reason,) = compare(windows(Count()), windows(Count(), 120)).reasons
    assert "is that of Count() over range windows (range 60 s, slide 60 s), now" in reason
    assert "Give the windows another name" in reason


def test_where_is_reported_as_it_is_written() -> None:
    was = windows(Sum(len))
    for earlier, words in ((was, "Sum(of=len)"), (without_aggregations(was), "Sum")):
        (reason,) = compare(earlier, windows(Sum(len).where(is_long))).reasons
        assert f"is that of {words} over range windows" in reason
        assert "now it is Sum(of=len).where(is_long) over range windows" in reason


def test_the_policy_of_a_step_that_moved_by_lines_is_not_reported_as_changed() -> None:
    def unnamed(line: int) -> str:
        name = f"filter at app.py:{line}:7"
        pipeline = keyed().filter(lambda text: text, name=name, on_error="skip")
        return dumps(plan(pipeline.to(count).to_sink(SINK)))

    moved = ("Steps that are named after their line are on another one.",)
    assert compare(unnamed(4), unnamed(12)).reasons == moved


def test_another_form_in_the_same_file_is_reported() -> None:
    def writing(form: str) -> str:
        sink = wallaroo.FileSinkConfig("out.txt", encode, form=form)
        return dumps(plan(keyed().to(count).to_sink(sink)))

    reason = (
        "Sink 'file' wrote lines and writes frames now: if these follow in the same file, it can "
        "be read in neither form."
    )
    assert compare(writing("lines"), writing("frames")).reasons == (reason,)
    earlier = json.loads(writing("lines"))
    del earlier["sinks"]["file"]["writes"]
    assert compare(json.dumps(earlier), writing("frames")).verdict is Verdict.SAME


def test_dedupe_by_another_function_is_reported() -> None:
    def by(function: Any) -> str:
        dedupe = keyed().dedupe(function, within=wallaroo.seconds(5), name="once")
        return dumps(plan(dedupe.to_sink(SINK)))

    def length(text: str) -> int:
        return len(text)

    def first(text: str) -> str:
        return text[:1]

    comparison = compare(by(length), by(first))

    assert comparison.verdict is Verdict.CHANGED
    assert comparison.reasons == (
        "Step 'once' compares events by 'first' instead of 'length': what it keeps was returned "
        "by the former function, and is compared with what the new one returns.",
    )


def with_header(length: int, fmt: str) -> Any:
    other = wallaroo.decoder(length, fmt)(decode.function)
    return tcp("in", decoder=other).key_by(first_letter).to(count).to_sink(SINK)


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (
            keyed().to(count_again).to_sink(SINK),
            "State step 'count' is gone or renamed: its state would be lost. If it was "
            "renamed, rename its state, too: `wallaroo state rename CHECKPOINT count NEW`.",
        ),
        (
            keyed("other").to(count).to_sink(SINK),
            "Source 'in' is gone, and input it has accepted may not be processed yet.",
        ),
        (
            tcp("in").key_by(last_letter).to(count).to_sink(SINK),
            "was kept by first_letter, now it is kept by last_letter. If the keys are the same, "
            "give the extractor its former name: @wallaroo.key_extractor('first_letter'). If not, "
            "give the step another name, and drop what is stored with --allow-incompatible: the "
            "new one begins empty.",
        ),
        (
            tcp("in").collect().to(count).to_sink(SINK),
            "was kept by first_letter, now it is kept by collect(). If that is meant, give the",
        ),
        (
            keyed()
            .to(wallaroo.state_computation("count", OtherTotal)(count.function))
            .to_sink(SINK),
            "OtherTotal. To keep it, give OtherTotal state_version = 2, and write "
            "@wallaroo.upgrade(OtherTotal, from_version=1): it is called with the attributes of "
            "each stored object. Or give the step another name,",
        ),
        (
            keyed().to(wallaroo.state_computation("count", dict)(count.function)).to_sink(SINK),
            "now it is of class builtins.dict. To continue, give the step another name, and drop",
        ),
        (
            wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt", decode))
            .key_by(first_letter)
            .to(count)
            .to_sink(SINK),
            "Source 'in' was a tcp source and is a file source now: their positions do not "
            "compare.",
        ),
        (
            with_header(2, ">H"),
            "Source 'in' has another header than the frames it has accepted (4 bytes, '>I').",
        ),
        (
            keyed().to(count).to_sink(wallaroo.TCPSinkConfig("127.0.0.1", 7002, encode)),
            "Sink 'stdout' is gone",
        ),
    ],
)
def test_what_loses_or_reinterprets_is_incompatible(pipeline: Any, reason: str) -> None:
    verdict, reasons = against(pipeline)
    assert verdict is Verdict.INCOMPATIBLE
    assert reason in reasons


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            lambda keys: keys.in_order(name="s"),
            (
                "events that wait in it would be lost. If it was renamed, rename its state, too:",
                "If it was removed, run the former version until its input has ended, or time",
                "`wallaroo state export --step s --checkpoint CHECKPOINT` prints it.",
            ),
        ),
        (
            lambda keys: keys.batch(3, name="s").map(str),
            ("events that wait in it would be lost.",),
        ),
        (
            lambda keys: keys.dedupe(len, within=wallaroo.seconds(5), name="s"),
            (
                "it would forget which events it has passed on. If it was renamed,",
                "If it was removed, --allow-incompatible drops only that.",
            ),
        ),
        (
            lambda keys: keys.join(keys, within=wallaroo.seconds(5), name="s").map(str),
            ("events that wait in it would be lost.",),
        ),
    ],
)
def test_a_step_that_is_removed_is_refused_with_what_would_be_lost(
    step: Any, words: tuple[str, ...]
) -> None:
    was = dumps(plan(step(tcp("in").with_event_time(len).key_by(first_letter)).to_sink(SINK)))
    now = dumps(plan(tcp("in").with_event_time(len).key_by(first_letter).to_sink(SINK)))

    found = compare(was, now)

    assert found.verdict is Verdict.INCOMPATIBLE
    (reason,) = found.reasons
    assert reason.startswith("Step 's' is gone or renamed: ")
    for each in words:
        assert each in reason


def test_another_application_and_other_key_groups_are_incompatible() -> None:
    assert against(keyed().to(count).to_sink(SINK), "other") == (
        Verdict.INCOMPATIBLE,
        "It belongs to the application 'app', this is 'other'. If that is its new name, nothing is "
        "lost by it: only what else is listed here would be dropped.",
    )
    found = compare(dumps(BASE), dumps(replace(BASE, key_groups=64)))
    assert found.reasons == ("Its state is laid out in 128 key groups, this plan has 64.",)


def test_another_format_is_incompatible() -> None:
    old = dumps(BASE).replace('"format": 1', '"format": 0')
    assert compare(old, dumps(BASE)).reasons == (
        "The plan was written in format 0, this version writes 1.",
    )


def test_all_reasons_are_given() -> None:
    _, reasons = against(tcp("other").to_sink(wallaroo.TCPSinkConfig("127.0.0.1", 7002, encode)))
    assert (
        "Source 'in' is gone" in reasons,
        "Sink 'stdout' is gone" in reasons,
        "State step 'count'" in reasons,
    ) == (True,) * 3


def test_keys_are_found_through_a_meeting_of_keyed_streams() -> None:
    merged = keyed("a").to(shout).merge(tcp("b").key_by(last_letter).to(shout)).to(count)
    assert json.loads(dumps(plan(merged.to_sink(SINK))))["states"]["count"]["keys"] == [
        "first_letter",
        "last_letter",
    ]


def to_file(path: str, name: str = "") -> Plan:
    return plan(keyed().to(count).to_sink(FileSinkConfig(path, encode, name=name)))


def test_a_sink_with_a_name_that_writes_to_another_place_is_reported() -> None:
    found = compare(dumps(to_file("out.txt", "out")), dumps(to_file("results.txt", "out")))
    assert found.verdict is Verdict.CHANGED
    assert found.reasons == (
        "Sink 'out' wrote to out.txt and writes to results.txt now: what has left stays where it "
        "is; waiting and new output goes to the new place.",
    )


def to_receiver(port: int, **options: Any) -> Plan:
    return to(wallaroo.TCPSinkConfig("127.0.0.1", port, encode, **options))


def test_a_sink_that_resumes_does_not_move_to_another_receiver() -> None:
    old = dumps(to_receiver(7001, name="out", resume=True))
    moved = dumps(to_receiver(7002, name="out", resume=True))
    found = compare(old, moved, waits=lambda sink: False)
    assert found.verdict is Verdict.INCOMPATIBLE
    assert found.reasons == (
        "Sink 'out' (resume=True) wrote to 127.0.0.1:7001 and writes to 127.0.0.1:7002 now, and "
        "another receiver lacks the bytes that have left. Run the former version until nothing "
        "waits, then give this sink another name: it begins at byte 0 then. If the same receiver "
        "moved, with its bytes, --allow-incompatible continues.",
    )
    assert lasting(json.loads(old), json.loads(moved)) == ""
    own = with_old_ids(to_receiver(7002, name="new", resume=True), old)
    renamed = compare(old, dumps(own.plan, own.gone), waits=lambda sink: False)
    assert renamed.verdict is Verdict.CHANGED
    plain = dumps(to_receiver(7002, name="out"))
    assert compare(old, plain).verdict is Verdict.CHANGED
    assert compare(old, old).verdict is Verdict.SAME


def to(sink: Any) -> Plan:
    return plan(keyed().to(count).to_sink(sink))


def to_table(*columns: str, **options: Any) -> Plan:
    return to(sinks.SQLiteSinkConfig("counts.db", "counts", columns=columns, **options))


def test_columns_of_a_sink_do_not_change_while_rows_of_the_former_ones_may_wait() -> None:
    old = dumps(to_table("word", "total"))
    new = dumps(to_table("word", "total", "day"))
    waiting = compare(old, new)
    assert waiting.verdict is Verdict.INCOMPATIBLE
    assert waiting.reasons == (
        "Sink 'sqlite' wrote the columns word, total without a key and writes the columns word, "
        "total, day without a key now, and output in the former form may not have left yet. Start "
        "the former version, stop it (Ctrl-C, SIGTERM) once `wallaroo status` shows that nothing "
        "waits, then start this one. Or give this one another name: it is another sink then, "
        "and --allow-incompatible leaves the former output in the outbox.",
    )
    assert compare(old, new, waits=lambda sink: False).verdict is not Verdict.INCOMPATIBLE
    assert compare(old, old).verdict is Verdict.SAME


def rolling(**options: Any) -> Plan:
    return to(sinks.RollingSinkConfig("out", encode, **options))


def redis(**options: Any) -> Plan:
    return to(sinks.RedisSinkConfig("redis://a/0", encode, name="out", **options))


def delta(*key: str) -> Plan:
    return to(sinks.DeltaSinkConfig("t", {"a": "string", "b": "string"}, encode, key=key))


def iceberg(*key: str) -> Plan:
    return to(sinks.IcebergSinkConfig("n.t", {"a": "string", "b": "string"}, encode, key=key))


def postgres(*key: str) -> Plan:
    return to(sinks.PostgresSinkConfig("host=h", "t", ("a", "b"), encode, key=key))


def websocket(is_text: bool) -> Plan:
    return to(sinks.WebSocketSinkConfig("ws://h/in", encode, text=is_text))


ROWS = {"columns": {"n": "int64"}}
FORMS = [
    (rolling(**ROWS), rolling(), "the columns n int64 and writes lines now"),
    (rolling(), rolling(**ROWS), "wrote lines and writes the columns n int64 now"),
    (to_table("a", "b", key=("a", "b")), to_table("a", "b", key=("b", "a")), "with the key b, a"),
    (to_table("a", "b"), to_table("a", "b", key="a"), "a, b without a key and writes"),
    (to_table("a", "b", key="a"), to_table("a", "b"), "a, b with the key a and writes"),
    (postgres("a", "b"), postgres("b", "a"), "with the key b, a"),
    (delta("a"), delta(), "with the key a and writes"),
    (iceberg("a"), iceberg(), "with the key a and writes"),
    (redis(stream="s"), redis(hash="h"), "entries of a stream and writes fields of a hash now"),
    (redis(hash="h"), redis(key="k:{id}"), "fields of a hash and writes keys of their own now"),
    (redis(stream="s"), redis(key="k:{id}"), "entries of a stream and writes keys of their own"),
    (websocket(False), websocket(True), "wrote binary messages and writes texts now"),
]


@pytest.mark.parametrize(("old", "new", "words"), FORMS)
def test_a_sink_of_another_form_is_refused_while_output_may_wait(
    old: Plan, new: Plan, words: str
) -> None:
    own = with_old_ids(new, dumps(old))
    was, now = dumps(old), dumps(own.plan, own.gone)
    found = compare(was, now)
    assert (found.verdict, len(found.reasons)) == (Verdict.INCOMPATIBLE, 1)
    assert words in found.reasons[0]
    assert "cannot be read in another form" in lasting(json.loads(was), json.loads(now))
    idle = compare(was, now, waits=lambda sink: False)
    assert idle.verdict is not Verdict.INCOMPATIBLE
    assert lasting(json.loads(was), json.loads(now), lambda sink: False) == ""


@pytest.mark.parametrize(("old", "new", "words"), FORMS)
def test_a_description_of_an_earlier_version_without_forms_is_compatible(
    old: Plan, new: Plan, words: str
) -> None:
    earlier = json.loads(dumps(old))
    for sink in earlier["sinks"].values():
        sink.pop("form", None)
    assert compare(json.dumps(earlier), dumps(old)).verdict is Verdict.SAME


def test_a_sink_of_another_form_and_name_is_another_sink() -> None:
    old = dumps(to_table("a", "b", key="a"))
    for name, gone in (("other", ["sqlite"]), ("sqlite", []), ("", [])):
        own = with_old_ids(to_table("a", "b", name=name), old)
        assert [*own.gone] == gone, name
    renamed = with_old_ids(to_table("a", "b", key="a", name="other"), old)
    assert [*renamed.gone] == []


def test_a_sink_that_comes_back_in_another_form_is_refused_while_output_may_wait() -> None:
    first = dumps(redis(stream="s"))
    between = with_old_ids(BASE, first)
    old = dumps(between.plan, between.gone)
    own = with_old_ids(redis(hash="h"), old)
    reasons = compare(old, dumps(own.plan, own.gone), waits=lambda sink: sink == "out").reasons
    assert [reason.partition(" and ")[0] for reason in reasons] == [
        "Sink 'out' wrote entries of a stream"
    ]


def test_a_sink_without_a_name_and_with_another_target_is_another_sink() -> None:
    old = dumps(to_file("out.txt"))
    own = with_old_ids(to_file("results.txt"), old)
    new = dumps(own.plan, own.gone)
    waiting = compare(old, new)
    assert waiting.reasons == (
        "Sink 'file' (out.txt) is gone, and output committed to it may not have left yet. If it "
        "was moved, name it: name='file' in its configuration.",
    )
    assert waiting.verdict is Verdict.INCOMPATIBLE
    idle = compare(old, new, waits=lambda sink: False)
    assert idle.verdict is Verdict.CHANGED
    assert idle.reasons == ("Sink 'file-2' is new.", "Sink 'file' is gone; nothing waits for it.")


def test_a_description_of_an_earlier_version_without_targets_is_compatible() -> None:
    earlier = json.loads(dumps(to_file("out.txt")))
    del earlier["sinks"]["file"]["target"]
    assert compare(json.dumps(earlier), dumps(to_file("out.txt"))).verdict is Verdict.SAME


def test_a_sink_of_another_kind_is_a_sink_that_is_gone() -> None:
    verdict = compare(dumps(to_file("out.txt")), dumps(BASE)).verdict
    assert verdict is Verdict.INCOMPATIBLE


def is_short(event: str) -> bool:
    return len(event) < 3


def test_state_goes_on_where_its_step_is_in_a_branch_now() -> None:
    """Given a stream that parts after the key_by, then the state still has the same keys."""
    short, long = keyed().branch(is_short)
    parted = plan(short.merge(long).to(count).to_sink(SINK))
    assert compare(dumps(BASE), dumps(parted)).verdict is Verdict.CHANGED

    twice = keyed()
    both = plan(twice.to(count).to_sink(SINK), "app", twice.to(count_again).to_sink(SINK))
    assert compare(dumps(BASE), dumps(both)).verdict is Verdict.CHANGED
    assert json.loads(dumps(both))["states"]["count again"]["keys"] == ["first_letter"]


def test_state_that_another_key_reaches_through_a_branch_is_refused() -> None:
    short, long = tcp("in").branch(is_short)
    other = plan(short.key_by(last_letter).to(count).to_sink(SINK), "app", long.to_sink(SINK))
    assert compare(dumps(BASE), dumps(other)).verdict is Verdict.INCOMPATIBLE
