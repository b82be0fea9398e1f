"""``in_order`` gives the events of a key by their times, late ones apart, and keeps nothing of what
it gave.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import wallaroo
from tests.conformance.apps.shapes import counting
from tests.conformance.apps.steps import by_first_word, sink, source
from wallaroo.steps.joins.order import content_of
from wallaroo.testing import LocalApplication

NOWHERE = Path("/nowhere")
LINES = [b"a 3 x", b"a 1 y", b"b 2 x", b"a 2 z", b"a 2 y", b"a 9 x", b"a 3 late", b"a 12 x"]


def time_of(event: str) -> float:
    return float(event.split()[1])


def lines() -> Any:
    timed = source(NOWHERE).with_event_time(
        time_of, allow_before_1980=True, delay=wallaroo.seconds(2)
    )
    return timed.key_by(by_first_word)


def application(*pipelines: Any, **options: Any) -> wallaroo.Application:
    ends = [pipeline.to_sink(sink(NOWHERE, f"out{n}")) for n, pipeline in enumerate(pipelines)]
    return wallaroo.build_application("in order", *ends, **options)


def fed(built: wallaroo.Application, size: int, tasks: int) -> LocalApplication:
    running = LocalApplication(built, tasks)
    running.send("in", *LINES)
    while running.waiting:
        running.batch(size)
    running.end()
    return running


def texts(outputs: list[bytes]) -> list[str]:
    return [output.decode().strip() for output in outputs]


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("size", [1, 3, len(LINES)])
def test_events_come_in_order_of_time_and_late_ones_apart(size: int, tasks: int) -> None:
    ordered, late = lines().in_order().with_late_events()

    running = fed(application(ordered.to(counting("count")), late), size, tasks)

    in_order, apart = map(texts, running.result().by_sink.values())
    of_a = [line for line in in_order if line[0] == "a"]
    assert of_a == ["a 1 y 1", "a 2 y 2", "a 2 z 3", "a 3 x 4", "a 9 x 5", "a 12 x 6"]
    assert [line for line in in_order if line[0] == "b"] == ["b 2 x 1"]
    assert apart == ["a 3 late"]


def test_events_come_when_the_watermark_has_passed_them_and_leave_nothing_behind() -> None:
    running = LocalApplication(application(lines().in_order()))
    running.send("in", b"a 4 x", b"a 3 x", b"a 5 x")
    assert texts(running.batch()["file"]) == ["a 3 x"]

    running.send("in", b"b 7 x")
    assert texts(running.batch()["file"]) == ["a 4 x", "a 5 x"]

    running.send("in", b"b 20 x")
    running.batch()
    running.end()

    assert all(not entries for entries in running._runner.entries.values())


@pytest.mark.parametrize(("on_error", "skipped"), [("stop", 0), ("skip", 1)])
def test_late_events_are_dropped_and_counted_where_that_is_wanted(
    on_error: str, skipped: int
) -> None:
    running = fed(application(lines().in_order(on_error=on_error)), 2, 2)

    assert "a 3 late" not in texts(running.result().outputs)
    assert sum(running.result().errors.values()) == skipped


def test_late_events_are_dead_letters_where_that_is_wanted() -> None:
    letters = wallaroo.FileSinkConfig(NOWHERE / "letters.txt", form="lines")
    built = application(lines().in_order(on_error="dead-letter"), dead_letters=letters)

    (letter,) = fed(built, 2, 2).result().dead_letters

    assert "4.000 s behind the watermark" in str(letter)


def test_after_collect_all_events_have_one_order() -> None:
    timed = source(NOWHERE).with_event_time(
        time_of, allow_before_1980=True, delay=wallaroo.seconds(2)
    )
    one = timed.collect().in_order().to(counting("count"))

    found = texts(fed(application(one), 3, 3).result().outputs)

    assert [line.split()[1] for line in found] == ["1", "2", "2", "2", "3", "9", "12"]


def test_an_unknown_policy_and_two_of_one_name_are_refused() -> None:
    with pytest.raises(wallaroo.PipelineError, match="on_error='never' is unknown"):
        lines().in_order(on_error="never")
    with pytest.raises(wallaroo.PipelineError, match="A step of this name"):
        application(lines().in_order().key_by(by_first_word).in_order())


def test_equal_events_have_equal_content_whichever_parts_are_one_object() -> None:
    word = "".join(["a", "word"])
    same = (word, word)
    apart = (word, "".join(["a", "word"]))
    assert pickle.dumps(same) != pickle.dumps(apart)

    assert content_of(same, pickle.dumps) == content_of(apart, pickle.dumps)

    endless: list[Any] = []
    endless.append(endless)
    assert content_of(endless, pickle.dumps) == pickle.dumps(endless)
