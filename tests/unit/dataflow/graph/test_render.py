"""The graph as text and as a diagram."""

from __future__ import annotations

import wallaroo
from tests.unit.dataflow.check.checked_steps import (
    SINK,
    count,
    encode,
    first_letter,
    last_letter,
    shout,
    tcp,
    whisper,
)
from wallaroo.dataflow.graph import render


def application() -> wallaroo.Application:
    left = tcp("a", 7010).key_by(first_letter).to(shout)
    right = tcp("b", 7011).key_by(last_letter).to(whisper)
    sinks = [SINK, wallaroo.TCPSinkConfig("127.0.0.1", 7002, encode)]
    return wallaroo.build_application("Both", left.merge(right).to(count).collect().to_sinks(sinks))


def test_text_shows_sources_steps_shuffles_and_sinks() -> None:
    assert render.text(application()) == (
        "Both\n"
        "    source 'a' (tcp 127.0.0.1:7010), decoder 'decode'\n"
        "    key_by 'first_letter'   ~~~ shuffle ~~~\n"
        "    to 'shout' (computation)\n"
        "    source 'b' (tcp 127.0.0.1:7011), decoder 'decode'\n"
        "    key_by 'last_letter'   ~~~ shuffle ~~~\n"
        "    to 'whisper' (computation)\n"
        "  merge\n"
        "  ~~~ shuffle, each event by the key it has ~~~\n"
        "  to 'count' (state_computation, state Total)\n"
        "  collect   ~~~ shuffle ~~~\n"
        "  to_sinks (stdout), encoder 'encode', (tcp 127.0.0.1:7002), encoder 'encode'\n"
    )


def test_text_says_why_a_key_by_does_not_shuffle() -> None:
    idle = wallaroo.build_application("Idle", tcp("a").key_by(first_letter).to_sink(SINK))
    assert "key_by 'first_letter' (no shuffle: no state step comes after it)\n" in render.text(idle)


def test_mermaid_draws_shuffles_as_thick_arrows() -> None:
    drawn = render.mermaid(application()).splitlines()
    assert drawn[0] == "flowchart LR"
    assert [line.strip() for line in drawn if "==>" in line] == [
        "n1 ==> n2",
        "n4 ==> n5",
        "n6 ==> n7",
        "n8 ==> n9_0",
        "n8 ==> n9_1",
    ]
    assert '  n7[["count<br>state Total"]]' in drawn
    assert '  n9_1[/"tcp 127.0.0.1:7002"/]' in drawn


def test_mermaid_escapes_what_would_break_the_diagram() -> None:
    step = wallaroo.computation(name='say "#1" <now>')(shout.function)
    drawn = render.mermaid(wallaroo.build_application("x", tcp("a").to(step).to_sink(SINK)))
    assert '["say #quot;#35;1#quot; #lt;now#gt;"]' in drawn


def is_short(event: str) -> bool:
    return len(event) < 3


def parted() -> wallaroo.Application:
    start = tcp("a", 7010)
    short, long = start.branch(is_short)
    merged = short.key_by(first_letter).to(count).merge(long.to(shout))
    return wallaroo.build_application(
        "Parted", merged.to_sink(SINK), start.to(whisper).to_sink(SINK)
    )


def test_text_lists_the_runs_of_steps_between_which_streams_part_and_meet() -> None:
    assert render.text(parted()) == (
        "Parted\n"
        "  1. source 'a' (tcp 127.0.0.1:7010), decoder 'decode'\n"
        "     -> 2, 6\n"
        "  2. branch 'is_short'\n"
        "     -> 3 where true, 4 where false\n"
        "  3. where 'is_short' is true\n"
        "     key_by 'first_letter'   ~~~ shuffle ~~~\n"
        "     to 'count' (state_computation, state Total)\n"
        "     -> 5\n"
        "  4. where 'is_short' is false\n"
        "     to 'shout' (computation)\n"
        "     -> 5\n"
        "  5. merge\n"
        "     to_sink (stdout), encoder 'encode'\n"
        "  6. to 'whisper' (computation)\n"
        "     to_sink (stdout), encoder 'encode'\n"
    )


def test_mermaid_draws_each_step_once_and_names_the_sides_of_a_branch() -> None:
    drawn = render.mermaid(parted()).splitlines()
    assert sum("is_short" in line for line in drawn) == 1
    assert sum("-->|true|" in line for line in drawn) == 1
    assert sum("-->|false|" in line for line in drawn) == 1
    assert sum("==>" in line for line in drawn) == 1
