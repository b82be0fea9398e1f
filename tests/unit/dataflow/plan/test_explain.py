"""The plan in words."""

from __future__ import annotations

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    first_letter,
    last_letter,
    shout,
    tcp,
)
from wallaroo.aggregations import Count
from wallaroo.dataflow.plan import explain


def test_explain_shows_stages_and_why_and_what_was_left_out() -> None:
    merged = (
        tcp("a", 7010)
        .merge(tcp("b", 7011).to(shout))
        .key_by(first_letter)
        .to(count)
        .key_by(last_letter)
    )
    application = wallaroo.build_application("Votes", merged.to_sink(SINK))
    assert explain.text(application.plan) == (
        "Votes: 3 stages, 1 shuffle in a row, 128 key groups\n"
        "\n"
        "stage 0 (level 0): It reads and decodes source 'a'.\n"
        "  from   source 'a' (tcp 127.0.0.1:7010), decoder 'decode'\n"
        "  to     stage 2, by key_by 'first_letter'; undecoded frames travel, and are decoded "
        "again after the shuffle\n"
        "\n"
        "stage 1 (level 0): It reads and decodes source 'b'.\n"
        "  from   source 'b' (tcp 127.0.0.1:7011), decoder 'decode'\n"
        "  step   'shout' (computation)\n"
        "  to     stage 2, by key_by 'first_letter'\n"
        "\n"
        "stage 2 (level 1): key_by 'first_letter' brings the events of one key to one place.\n"
        "  from   the shuffle after stages 0, 1\n"
        "  step   'count' (state_computation, state Total per key)\n"
        "  to     sink 'stdout' (stdout)\n"
        "\n"
        "note: key_by 'last_letter' shuffles nothing: no state step comes after it.\n"
    )


def test_explain_names_collect_and_meetings() -> None:
    application = wallaroo.build_application("All", tcp("a").collect().to(count).to_sink(SINK))
    assert "collect() brings every event to one place." in explain.text(application.plan)
    met = (
        tcp("a")
        .key_by(first_letter)
        .to(shout)
        .merge(tcp("b").key_by(last_letter).to(shout))
        .to(count)
        .to_sink(SINK)
    )
    shown = explain.text(wallaroo.build_application("Met", met).plan)
    assert (
        "Keyed streams meet here, each by the key it has: 'count' keeps one state per key." in shown
    )


def test_explain_notes_windows_that_use_times_of_receipt() -> None:
    windows = wallaroo.range_windows(wallaroo.seconds(5)).over(Count(), name="counts")

    def explained(events: wallaroo.Pipeline[str]) -> str:
        end = events.key_by(first_letter).to(windows).to_sink(SINK)
        return explain.text(wallaroo.build_application("Votes", end).plan)

    note = "note: events of 'in' have the time of their receipt in 'counts': with_event_time()"
    assert note in explained(tcp("in"))
    assert "note:" not in explained(tcp("in").with_event_time(float))
