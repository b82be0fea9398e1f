"""What a status looks like: as a table, as a line, as a summary."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from tests.unit.cli.run.fakes import STATUS
from wallaroo.cli.run import views
from wallaroo.cli.run.table import WORKERS_SHOWN, live_table
from wallaroo.cli.run.text import log_facts, log_line, summary
from wallaroo.cli.run.views import LineView
from wallaroo.cli.terminal.formatting import (
    duration,
    group_ranges,
    milliseconds,
    size,
    spread,
)
from wallaroo.monitoring.metrics.status import (
    BackfillStatus,
    RunState,
    RunStatus,
    StepLosses,
    StepTime,
    StepUpgrade,
    TimeStatus,
    WorkerStatus,
)

MOVED = "key groups moved: 64 of 128, state moved: 31 MB, pause 0.4 s"
WORKERS = (
    WorkerStatus("worker-1", "127.0.0.2", 2, 4, tuple(range(85))),
    WorkerStatus("worker-2", "127.0.0.3", 1, 2, tuple(range(85, 128))),
)


def screen(status: RunStatus, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(live_table(status))
    return captured.get()


def row(text: str, first: str) -> str:
    """The line that begins so, its columns one space apart."""
    return next(
        " ".join(line.split()) for line in text.splitlines() if line.strip().startswith(first)
    )


def test_the_table_heads_with_application_state_time_batches_and_tasks() -> None:
    assert (
        screen(STATUS).splitlines()[0].strip()
        == "Market Spread running  1 min 03 s, 61 batches, 2 tasks"
    )


def test_what_holds_event_time_back_is_a_line() -> None:
    time = TimeStatus(5.0, 12.0, "source 'clicks', partition 2")
    text = screen(replace(STATUS, step_times=(StepTime("sessions", time),)))
    assert row(text, "event time") == (
        "event time is held back by source 'clicks', partition 2: 12.0 s behind the clock"
    )


def test_idle_sources_are_idle_and_do_not_lag() -> None:
    idle = TimeStatus(5.0, None, "", 3, 3, is_idle=True)
    sources = tuple(replace(source, time=idle) for source in STATUS.sources)
    text = screen(replace(STATUS, sources=sources, step_times=(StepTime("sessions", idle),)), 140)
    assert row(text, "event time") == "event time: all sources are idle, so it follows the clock"
    assert " idle" in row(text, "Orders")
    assert "behind" not in text


def test_the_table_shows_rates_backlog_and_batch_time() -> None:
    assert (
        row(screen(STATUS), "251,400") == "251,400 249,870 1,204 292,000 (14.3 MiB) 912 ms 874 ms"
    )


@pytest.mark.parametrize(
    ("backfill", "words"),
    [
        (BackfillStatus(43, 57, 0.43, 725.0), "backfill 43 %, 12 min 05 s left"),
        (BackfillStatus(43, 57, 0.43, None), "backfill 43 %"),
        (BackfillStatus(5000, 7, None, None), "backfill, 5,000 events"),
    ],
)
def test_the_progress_of_a_first_part_is_in_the_table_and_in_the_log(
    backfill: BackfillStatus, words: str
) -> None:
    filling = replace(STATUS.sources[0], backfill=backfill)
    status = replace(STATUS, sources=(filling,))
    assert row(screen(status, 140), "Orders").endswith(words)
    assert f"source Orders {words}" in log_line(status)


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
    empty = replace(
        STATUS,
        state=RunState.STARTING,
        sources=(),
        sinks=(),
        latency=(),
        waiting_for="",
        batches=0,
        last_batch=-1,
    )
    assert "starting" in screen(empty)
    assert "waiting" not in screen(empty)


def test_names_that_look_like_markup_are_shown_verbatim() -> None:
    source = replace(STATUS.sources[0], name="[red]in[/red]", label="[bold]")
    assert "[red]in[/red]" in screen(replace(STATUS, application="[b]x", sources=(source,)))


def test_the_table_shows_several_workers_with_their_key_groups_and_what_moved() -> None:
    text = screen(replace(STATUS, workers=WORKERS, moved=MOVED))
    assert row(text, "worker-1") == "worker-1 127.0.0.2 2 4 85 0-84"
    assert row(text, "worker-2") == "worker-2 127.0.0.3 1 2 43 85-127"
    assert row(text, "key groups moved") == MOVED


def test_the_table_shows_of_how_many_key_groups_a_worker_has_copies() -> None:
    workers = (replace(WORKERS[0], replica_groups=(85, 86)), WORKERS[1])
    text = screen(replace(STATUS, workers=workers, moved=MOVED))
    assert row(text, "worker-1") == "worker-1 127.0.0.2 2 4 85 + 2 copied 0-84"


def test_the_table_of_one_worker_shows_no_workers_but_what_moved_to_it() -> None:
    text = screen(replace(STATUS, workers=WORKERS[:1], moved=MOVED))
    assert "worker-1" not in text
    assert MOVED in text


def test_of_very_many_workers_the_table_shows_the_first_and_sums_up_the_rest() -> None:
    many = tuple(
        WorkerStatus(f"w{n:03}", "", 1, 1, tuple(range(n, n + 1 + n % 2))) for n in range(100)
    )
    text = screen(replace(STATUS, workers=many))
    assert f"w{WORKERS_SHOWN - 1:03}" in text
    assert f"w{WORKERS_SHOWN:03}" not in text
    assert row(text, "84 more") == "84 more 1 to 2 key groups each"


def test_a_narrow_terminal_wraps_words_and_keeps_numbers_whole() -> None:
    text = screen(STATUS, width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "7,706,000" in text


def test_a_very_narrow_terminal_leaves_out_columns_and_breaks_no_address() -> None:
    text = screen(STATUS, width=62)
    assert max(map(len, text.splitlines())) <= 62
    assert row(text, "NBBO") == "NBBO tcp 127.0.0.1:7011 7,706,000 146,000 paused:"
    assert row(text, "251,400") == "251,400 249,870 1,204 292,000 (14.3 MiB) 912 ms"
    assert row(text, "Market Data") == "Market Data 4.25 ms 9.5 ms 9.51 ms 40"
    assert "connections" not in text


def test_one_batch_is_a_batch() -> None:
    status = replace(STATUS, batches=1, tasks=1)
    assert ", 1 batch, 1 task" in screen(status)
    assert " | 1 batch, last " in log_line(status)
    assert ", 1 batch (median" in summary(status)


def test_a_starting_run_says_what_it_does() -> None:
    status = replace(STATUS, state=RunState.STARTING, doing="starting Spark")
    assert "Market Spread starting: starting Spark  1 min" in screen(status)
    assert log_line(status) == "Market Spread starting: starting Spark 1 min 03 s"


def test_the_log_line_is_one_line_with_the_key_facts() -> None:
    assert log_line(STATUS) == (
        "Market Spread running 1 min 03 s | in 251,400/s, done 249,870/s, out 1,204/s | backlog "
        "292,000 events (14.3 MiB)"
        " | 61 batches, last 912 ms, median 874 ms | latency of Orders p50 512 ms, p99 1,120 ms"
        " | latency of Market Data p50 4.25 ms, p99 9.5 ms | source NBBO paused: backlog at its "
        "bound"
        " | waiting for tcp-7002: 127.0.0.1:7002 (connection refused)"
    )


def test_the_log_line_says_how_key_groups_are_spread_over_several_workers() -> None:
    assert " | 2 workers: 43 to 85 key groups each | waiting for" in log_line(
        replace(STATUS, workers=WORKERS, moved=MOVED)
    )
    assert "worker" not in log_line(replace(STATUS, workers=WORKERS[:1]))


def test_the_summary_says_what_moved_last() -> None:
    assert f"  last move    {MOVED}" in summary(replace(STATUS, moved=MOVED)).splitlines()


def test_the_summary_says_what_the_run_did() -> None:
    assert summary(replace(STATUS, state=RunState.STOPPED, recovered_batch=17)).splitlines() == [
        "Market Spread: stopped after 1 min 03 s, 61 batches (median 874 ms)",
        "  events in    15,412,000",
        "  events done  15,120,000  (239,241/s while running)",
        "  outputs      72,310  (1,144/s)",
        "  left over    292,000 events, not yet processed",
        "  waiting for  127.0.0.1:7002 (connection refused): 4.0 KiB of tcp-7002 not sent",
        "  began        after batch 17 of its checkpoint",
        "  checkpoint   /var/lib/spread",
        "  latency, receipt to output         p50         p95         p99       p99.9         max",
        "  Orders                          512 ms      901 ms    1,120 ms    1,404 ms      12.5 s",
        "  Market Data                    4.25 ms        8 ms      9.5 ms      9.5 ms     9.51 ms",
    ]


def test_the_summary_of_a_run_that_did_nothing_leaves_out_what_there_is_not() -> None:
    nothing = replace(
        STATUS, state=RunState.STOPPED, elapsed_s=0.0, events_in=0, events_done=0, outputs=0
    )
    text = summary(replace(nothing, sources=(), sinks=(), latency=()))
    assert "began        empty" in text
    assert not any(word in text for word in ("left over", "waiting for", "latency"))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (8.24, "8.2 s"), (63, "1 min 03 s"), (7500, "2 h 05 min")]
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 ms"), (99.9, "99.9 ms"), (1_120, "1,120 ms"), (12_480, "12.5 s")]
)
def test_a_latency_has_three_digits(value: float, text: str) -> None:
    assert milliseconds(value) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (5_872_025, "5.6 MiB"), (2**41, "2.0 TiB")]
)
def test_bytes_are_shown_in_the_largest_fitting_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_the_line_view_prints_at_once_when_the_state_changes_and_else_only_every_few_seconds() -> (
    None
):
    stream = io.StringIO()
    with LineView(stream, every_s=3600) as view:
        for state in ("running", "running", "running", "stopping"):
            view.show(replace(STATUS, state=RunState(state)))
    lines = stream.getvalue().splitlines()
    assert [line.split(" | ")[0].split()[2] for line in lines] == ["running", "stopping"]


def test_the_line_view_says_at_once_and_once_what_the_cluster_moved() -> None:
    stream = io.StringIO()
    with LineView(stream, every_s=3600) as view:
        for moved in ("", MOVED, MOVED, "more"):
            view.show(replace(STATUS, moved=moved))
    assert stream.getvalue().splitlines()[1:] == [MOVED, "more"]


@pytest.mark.parametrize(
    ("groups", "text"), [([], ""), ([7], "7"), ([5, 4, 9, 6], "4-6, 9"), (range(64), "0-63")]
)
def test_key_groups_are_shown_as_ranges(groups: list[int], text: str) -> None:
    assert group_ranges(groups) == text


def test_scattered_key_groups_are_cut_off() -> None:
    assert group_ranges(range(0, 32768, 2)).endswith("14 and 16376 more ranges")


@pytest.mark.parametrize(
    ("counts", "text"), [([1], "1 key group each"), ([0, 128], "0 to 128 key groups each")]
)
def test_a_spread_names_the_least_and_the_most(counts: list[int], text: str) -> None:
    assert spread(counts) == text


def test_the_line_view_prints_again_when_its_time_has_passed() -> None:
    stream = io.StringIO()
    with LineView(stream, every_s=0.0) as view:
        view.show(STATUS)
        view.show(STATUS)
    assert len(stream.getvalue().splitlines()) == 2


def test_the_line_view_logs_once_a_minute_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time that has passed is not a change; a figure is."""
    now_s = [1_000.0]
    monkeypatch.setattr(views.time, "monotonic", lambda: now_s[0])
    stream = io.StringIO()
    with LineView(stream) as view:
        for second in range(0, 120, 5):
            view.show(replace(STATUS, elapsed_s=float(second)))
            now_s[0] += 5
        still = len(stream.getvalue().splitlines())
        view.show(replace(STATUS, events_in=STATUS.events_in + 1))
    assert still == 2
    assert len(stream.getvalue().splitlines()) == 3


def test_a_run_whose_input_is_processed_is_finished() -> None:
    ended = replace(STATUS, state=RunState.FINISHED)
    assert summary(ended).startswith("Market Spread: finished (all input is processed) after 1 min")


def test_rates_of_the_summary_do_not_count_the_start() -> None:
    status = replace(STATUS, state=RunState.STOPPED, elapsed_s=60.0, events_done=1_000)
    late = replace(status, running_at=status.started_at + 50)
    assert "(100/s while running)" in summary(late)


def test_workers_that_were_killed_are_in_the_table_and_in_the_summary() -> None:
    status = replace(STATUS, workers_killed=2)
    words = "2 worker processes were killed or crashed; the tasks ran again"
    assert words in screen(status)
    assert words in summary(status)
    one = "1 worker process was killed or crashed; the tasks ran again"
    assert one in screen(replace(STATUS, workers_killed=1))
    assert "killed" not in screen(STATUS)


def test_facts_of_a_log_entry_have_what_steps_left_out() -> None:
    losses = (StepLosses("count", {"filtered": 3, "late": 20}, 25, 100, "too many are late"),)
    facts = log_facts(replace(STATUS, losses=losses))
    assert json.loads(json.dumps(facts))["left_out"] == {"count": {"filtered": 3, "late": 20}}


def test_an_upgrade_of_state_is_on_the_screen_until_its_end() -> None:
    counting = StepUpgrade("count", 2, left=7)
    assert "state of count: 0 upgraded, counting what is left" in screen(
        replace(STATUS, upgrades=(counting,))
    )
    begun = replace(counting, upgraded=1_200, is_counted=True)
    status = replace(STATUS, upgrades=(begun,))
    assert "state of count: 1,200 upgraded, 7 left" in screen(status)
    assert "count: 1,200 upgraded, 7 left" in summary(status)
    assert log_facts(status)["upgrades"][0]["left"] == 7
    ended = replace(STATUS, upgrades=(replace(begun, left=0, is_done=True),))
    assert "upgraded" not in screen(ended)
    assert "count: 1,200 upgraded, 0 left" in summary(ended)


LATE = replace(STATUS, latency_target_ms=50.0, latency_newest_ms=240.0, latency_late_s=3)


def test_the_log_states_once_that_a_latency_target_is_missed_and_that_it_is_kept_again() -> None:
    """A run from which nothing leaves has not shown that it keeps its target."""
    stream = io.StringIO()
    silent = replace(LATE, latency_newest_ms=0.0, latency_late_s=0)
    stalled = replace(LATE, latency_late_s=2)  # the late results pass, and none follow
    kept = replace(LATE, latency_newest_ms=52.0, latency_late_s=0)
    with LineView(stream, every_s=0.0) as view:
        for status in (kept, LATE, LATE, stalled, silent, kept, kept, LATE):
            view.show(status)
    missed = "not kept: of the last ten seconds' results one in a hundred took 240 ms or longer"
    about = [line.partition("50 ms is ")[2] for line in stream.getvalue().splitlines()]
    assert [line for line in about if line] == [missed, "kept again", missed]


@pytest.mark.parametrize("text_of", [screen, summary])
def test_a_latency_target_that_is_missed_is_named(text_of: Callable[[RunStatus], str]) -> None:
    """The table and the summary say so; none does within twice the target."""
    words = "the latency target of 50 ms is not kept"
    assert words in text_of(LATE)
    assert words not in text_of(replace(LATE, latency_newest_ms=100.0))
    assert words not in text_of(replace(LATE, latency_late_s=2))
    assert words not in text_of(replace(LATE, latency_target_ms=0.0))
    assert words not in text_of(replace(LATE, state=RunState.FINISHED))


def test_the_table_fits_a_terminal_of_any_width() -> None:
    for width in range(20, 120):
        lines = screen(STATUS, width=width).splitlines()
        assert max(map(len, lines)) <= width
