"""A checkpoint with a join is continued only if what waits keeps its side and its meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

import wallaroo
from tests.timed_events import decode, encode, key_of, time_of
from wallaroo.dataflow.plan.json import (
    Comparison,
    Verdict,
    abandoned,
    compare,
    dumps,
)


@wallaroo.computation(name="shout")
def shout(event: Any) -> Any:
    return event


@wallaroo.computation(name="whisper")
def whisper(event: Any) -> Any:
    return event


def is_even(event: Any) -> bool:
    return bool(event[1] % 2 == 0)


def stream(name: str) -> Any:
    config = wallaroo.TCPSourceConfig(name, "127.0.0.1", str(7100 + len(name)), decode)
    return wallaroo.source(name, config).with_event_time(time_of)


def keyed(name: str) -> Any:
    return stream(name).key_by(key_of)


def text_of(pipeline: Any) -> str:
    sink = wallaroo.StdoutSinkConfig(encode)
    return dumps(wallaroo.build_application("app", pipeline.to_sink(sink)).plan)


def joined(left: Any, right: Any, seconds: int = 10, how: str = "outer") -> Any:
    return left.join(right, within=wallaroo.seconds(seconds), how=how, name="j")


def against(old: Any, new: Any) -> Comparison:
    return compare(text_of(old), text_of(new))


def test_sides_that_change_places_are_refused() -> None:
    old, new = joined(keyed("a"), keyed("bb")), joined(keyed("bb"), keyed("a"))
    assert against(old, new) == Comparison(
        Verdict.INCOMPATIBLE,
        (
            "Step 'j' has source 'a', 'bb' on its other side now, and events wait in it. Undo "
            "that, or give the step another name.",
        ),
    )
    assert abandoned(text_of(old), text_of(new)) == {"j"}
    assert abandoned(text_of(old), text_of(old)) == frozenset()


def test_sides_of_a_latest_join_that_change_places_are_refused() -> None:
    old = keyed("a").join_latest(keyed("bb"), name="j")
    new = keyed("bb").join_latest(keyed("a"), name="j")
    assert "has source 'a', 'bb' on its other side now" in against(old, new).reasons[0]


def test_sides_of_a_window_join_that_change_places_are_refused() -> None:
    windows = wallaroo.range_windows(wallaroo.seconds(10))
    old = keyed("a").join_windows(keyed("bb"), windows, name="j")
    new = keyed("bb").join_windows(keyed("a"), windows, name="j")
    assert "has source 'a', 'bb' on its other side now" in against(old, new).reasons[0]


def test_steps_tell_sides_of_one_source_apart() -> None:
    def both(first: Any, second: Any) -> Any:
        events = stream("a")
        return joined(events.to(first).key_by(key_of), events.to(second).key_by(key_of))

    found = against(both(shout, whisper), both(whisper, shout))
    assert "has step 'shout', 'whisper' on its other side now" in found.reasons[0]
    assert against(both(shout, whisper), both(shout, whisper)).verdict is Verdict.SAME


def test_keyed_sides_with_steps_after_the_key_are_known() -> None:
    old = joined(keyed("a").to(shout), keyed("bb"))
    new = joined(keyed("bb"), keyed("a").to(shout))
    assert "has source 'a', 'bb' on its other side now" in against(old, new).reasons[0]


def test_steps_may_come_to_a_side_and_sources_too() -> None:
    old = joined(keyed("a"), keyed("bb"))
    more = stream("a").merge(stream("ccc")).key_by(key_of)
    assert against(old, joined(keyed("a").to(shout), keyed("bb"))).verdict is Verdict.CHANGED
    assert against(old, joined(more, keyed("bb"))).verdict is Verdict.CHANGED


def test_another_way_to_join_is_refused() -> None:
    old, new = joined(keyed("a"), keyed("bb")), joined(keyed("a"), keyed("bb"), how="left")
    assert against(old, new).reasons == (
        "Step 'j' joined with how='outer' and joins with how='left' now, and events wait in it. "
        "Undo that, or give the step another name.",
    )


def test_another_kind_of_step_under_its_name_is_refused() -> None:
    old = joined(keyed("a"), keyed("bb"))
    new = keyed("a").join_latest(keyed("bb"), name="j")
    assert any(
        "was a step of kind interval join and is one of kind latest join now" in reason
        for reason in against(old, new).reasons
    )


@pytest.mark.parametrize(
    ("new", "span"),
    [
        (joined(keyed("a"), keyed("bb"), 20), "20 s"),
        (joined(keyed("a"), keyed("bb"), 1), "1 s"),
    ],
)
def test_another_span_is_reported(new: Any, span: str) -> None:
    assert against(joined(keyed("a"), keyed("bb")), new) == Comparison(
        Verdict.CHANGED,
        (
            f"Step 'j' has the span {span} instead of 10 s: it counts for what waits, too; what "
            f"was let go is gone.",
        ),
    )


def test_a_checkpoint_of_an_earlier_version_takes_the_join_as_it_is() -> None:
    pipeline = joined(keyed("a"), keyed("bb"))
    earlier = json.loads(text_of(pipeline))
    del earlier["joins"]
    assert compare(json.dumps(earlier), text_of(pipeline)).verdict is Verdict.SAME
