"""What a status looks like: as a table, as a line, as a summary."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.unit.live.fakes import STATUS
from wallaroo.cli.live import LineView, duration, live_table, log_line, milliseconds, size, summary
from wallaroo.metrics.status import RunStatus


def screen(status: RunStatus, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(live_table(status))
    return captured.get()


def row(text: str, first: str) -> str:
    """The line that begins so, its columns one space apart."""
    return next(" ".join(line.split()) for line in text.splitlines() if line.strip().startswith(first))


def test_the_table_heads_with_application_state_time_batches_and_tasks() -> None:
    assert screen(STATUS).splitlines()[0].strip() == "Market Spread running  1 min 03 s, 61 batches, 2 tasks"


def test_the_table_shows_rates_backlog_and_batch_time() -> None:
    assert row(screen(STATUS), "251,400") == "251,400 249,870 1,204 292,000 (14.3 MiB) 912 ms 874 ms"


def test_the_table_shows_each_source_with_connections_and_why_it_is_paused() -> None:
    text = screen(STATUS)
    assert row(text, "Orders") == "Orders tcp 127.0.0.1:7010 1 7,706,000 7,560,000 146,000"
    assert row(text, "NBBO")[-36:] == "146,000 paused: backlog at its bound"


def test_the_table_shows_each_sink_and_what_it_waits_for() -> None:
    wanted = "tcp-7002 tcp 127.0.0.1:7002 72,310 4.0 KiB 127.0.0.1:7002 (connection refused)"
    assert row(screen(STATUS), "tcp-7002") == wanted


def test_the_table_shows_latency_percentiles_of_each_pipeline() -> None:
    assert row(screen(STATUS), "Market Data") == "Market Data 4.25 ms 8 ms 9.5 ms 9.5 ms 9.51 ms 40"


def test_the_table_says_what_the_run_waits_for_and_where_the_checkpoint_is() -> None:
    text = screen(STATUS)
    assert "waiting for tcp-7002: 127.0.0.1:7002 (connection refused)" in text
    assert "checkpoint /var/lib/spread" in text


def test_a_temporary_checkpoint_is_called_so() -> None:
    assert "temporary; keep one with --checkpoint DIR" in screen(replace(STATUS, is_durable=False))


def test_a_starting_run_has_a_table_too() -> None:
    empty = replace(STATUS, state="starting", sources=(), sinks=(), latency=(), waiting_for="", batches=0, last_batch=-1)
    assert "starting" in screen(empty)
    assert "waiting" not in screen(empty)


def test_names_that_look_like_markup_are_shown_verbatim() -> None:
    source = replace(STATUS.sources[0], name="[red]in[/red]", label="[bold]")
    assert "[red]in[/red]" in screen(replace(STATUS, application="[b]x", sources=(source,)))


def test_a_narrow_terminal_wraps_words_and_keeps_numbers_whole() -> None:
    text = screen(STATUS, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "7,706,000" in text


def test_the_log_line_is_one_line_with_the_key_facts() -> None:
    assert log_line(STATUS) == (
        "Market Spread running 1 min 03 s | in 251,400/s, done 249,870/s, out 1,204/s | backlog 292,000 events (14.3 MiB)"
        " | 61 batches, last 912 ms, median 874 ms | latency of Orders p50 512 ms, p99 1,120 ms"
        " | latency of Market Data p50 4.25 ms, p99 9.5 ms | source NBBO paused: backlog at its bound"
        " | waiting for tcp-7002: 127.0.0.1:7002 (connection refused)"
    )


def test_the_summary_says_what_the_run_did() -> None:
    assert summary(replace(STATUS, state="stopped", recovered_batch=17)).splitlines() == [
        "Market Spread: stopped after 1 min 03 s, 61 batches (median 874 ms)",
        "  events in    15,412,000",
        "  events done  15,120,000  (239,241/s over the whole run)",
        "  outputs      72,310  (1,144/s)",
        "  left over    292,000 events in the spool, not yet processed",
        "  waiting for  127.0.0.1:7002 (connection refused): 4.0 KiB of tcp-7002 not sent",
        "  began        after batch 17 of its checkpoint",
        "  checkpoint   /var/lib/spread",
        "  latency, receipt to output         p50         p95         p99       p99.9         max",
        "  Orders                          512 ms      901 ms    1,120 ms    1,404 ms      12.5 s",
        "  Market Data                    4.25 ms        8 ms      9.5 ms      9.5 ms     9.51 ms",
    ]


def test_the_summary_of_a_run_that_did_nothing_leaves_out_what_there_is_not() -> None:
    nothing = replace(STATUS, state="stopped", elapsed_s=0.0, events_in=0, events_done=0, outputs=0)
    text = summary(replace(nothing, sources=(), sinks=(), latency=()))
    assert "began        empty" in text
    assert not any(word in text for word in ("left over", "waiting for", "latency"))


@pytest.mark.parametrize(("seconds", "text"), [(0, "0.0 s"), (8.24, "8.2 s"), (63, "1 min 03 s"), (7500, "2 h 05 min")])
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0 ms"), (99.9, "99.9 ms"), (1_120, "1,120 ms"), (12_480, "12.5 s")])
def test_a_latency_has_three_digits(value: float, text: str) -> None:
    assert milliseconds(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (5_872_025, "5.6 MiB"), (2**41, "2.0 TiB")])
def test_bytes_are_shown_in_the_largest_fitting_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_the_line_view_prints_at_once_when_the_state_changes_and_else_only_every_few_seconds() -> None:
    stream = io.StringIO()
    view = LineView(stream, every_s=3600)
    for state in ("running", "running", "running", "stopping"):
        view.show(replace(STATUS, state=state))
    lines = stream.getvalue().splitlines()
    assert [line.split(" | ")[0].split()[3] for line in lines] == ["running", "stopping"]


def test_the_line_view_prints_again_when_its_time_has_passed() -> None:
    stream = io.StringIO()
    view = LineView(stream, every_s=0.0)
    view.show(STATUS)
    view.show(STATUS)
    assert len(stream.getvalue().splitlines()) == 2
