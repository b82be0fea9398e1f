"""The table of figures: `/metrics` as it was, the page, and notes for people."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.monitoring.dashboard.fakes import BusyRun
from wallaroo.cli.run.text import ingress_lines, lag_lines, log_line, process_lines, summary
from wallaroo.monitoring.metrics.status import (
    BackfillStatus,
    IngressStatus,
    ProcessStatus,
    ReplicaStatus,
    SinkLine,
    SourceStatus,
    StandbyStatus,
    StepLosses,
    StepUpgrade,
    TimeStatus,
)
from wallaroo.monitoring.status_api.figures import FIGURES, notes
from wallaroo.monitoring.status_api.live import LiveView
from wallaroo.monitoring.status_api.prometheus import exposition
from wallaroo.monitoring.status_api.queries import status_json, status_of
from wallaroo.sources.log import REJECTED, SKIPPED

ROOT = Path(__file__).resolve().parents[4]
GOLDEN = Path(__file__).with_name("golden_metrics.txt")
VALUE = re.compile(r" [^ ]+$")
WARNING = "25% of the events of step 'count' are late"


PROCESSES = (
    ProcessStatus("driver", 1, 0.1, 90 << 20),
    ProcessStatus("worker", 7, 0.75, 200 << 20),
    ProcessStatus("worker", 8, 0.5, 100 << 20),
)


def families(run: BusyRun) -> str:
    """The text that a rich run exposes, without its values and the driver's process."""
    status = run.status()
    behind = TimeStatus(status.started_at - 9, 9.25, "source 'words'", 4, 1)
    rich = replace(
        status,
        sources=(
            replace(
                status.sources[0],
                time=behind,
                lags={"t-0": 4},
                group="wallaroo-words",
                backfill=BackfillStatus(40, 60, 0.4, 12.5),
            ),
            SourceStatus("Other", "file x", 5, 4, 1, 70, 0, True, True, TimeStatus(None, None)),
            SourceStatus("Plain", "file y", 1, 1, 0, 0, 0, False, True),
        ),
        sinks=(status.sinks[0], SinkLine("slow", "tcp x", 3, "tcp x", 9000, 1.0)),
        workers_killed=2,
        processes=PROCESSES,
        cpu_s={"driver": 3.5, "worker": 9.0},
        damaged=("deltas/7: too short",),
        losses=(StepLosses("count", {"filtered": 3, "late": 20}, 25, 100, WARNING),),
        upgrades=(StepUpgrade("count", 2, 40, 60, is_counted=True),),
    )
    lines = exposition(run.plan, rich, run.meter.details()).decode().splitlines()
    kept = [line if line.startswith("#") else VALUE.sub("", line) for line in lines]
    repeated = re.compile(r"(?<!wallaroo_)process_|key_group=\"[1-9]|le=\"\d|version=")
    once = [line for line in kept if not repeated.search(line)]
    return "\n".join(once) + "\n"


def test_names_types_labels_and_texts_of_metrics_stay(tmp_path: Path) -> None:
    """Alerts and dashboards of users refer to them: a change of the file is a change for users."""
    assert families(BusyRun(tmp_path, seconds=61)) == GOLDEN.read_text()


@pytest.mark.parametrize(
    ("last", "ready", "words", "behind"),
    [
        (None, -1, "its commits are not read yet", []),
        (-1, -1, "nothing is committed yet", ["wallaroo_standby_behind_commits 0.0"]),
        (
            120,
            118,
            "the state here is 2 commits behind commit 120",
            ["wallaroo_standby_behind_commits 2.0"],
        ),
    ],
)
def test_a_standby_that_has_not_read_the_commits_does_not_claim_to_be_up_to_date(
    tmp_path: Path, last: int | None, ready: int, words: str, behind: list[str]
) -> None:
    run = BusyRun(tmp_path, seconds=1)
    standby = StandbyStatus("process 7 on a", 3, 0.4, 3.0, last, ready)
    status = replace(run.status(), standby=standby)
    exposed = exposition(run.plan, status, run.meter.details()).decode().splitlines()
    assert [line for line in exposed if line.startswith("wallaroo_standby_behind")] == behind
    assert standby.words == (
        f"standby: process 7 on a leads (epoch 3), its lease moved 0.4 s ago; {words}"
    )


def test_no_two_figures_have_one_name() -> None:
    names = [figure.family for figure in FIGURES]
    assert len(set(names)) == len(names)


def test_the_page_has_the_present_table() -> None:
    """`python scripts/figures.py` writes it."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "scripts" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = script.PAGE.read_text(encoding="utf-8")
    assert script.page_of(page) == page
    assert f"`{FIGURES[0].family}`" in page


def test_a_counter_of_a_source_is_wherever_the_status_is_shown(tmp_path: Path) -> None:
    """Records skipped with ``on_data_loss="skip"``: a row of the table, and one call of `note`."""
    run = BusyRun(tmp_path, seconds=2)
    assert 'wallaroo_source_skipped_records_total{source="Lines"} 0.0' in text_of(run)
    run.meter.counts.note("Lines", {SKIPPED: 1204})

    words = "Lines: 1,204 records were skipped because their place was lost"
    status = status_of(json.loads(json.dumps(status_json(run.status()))))
    assert status.counts == {SKIPPED: {"Lines": 1204}}
    assert notes(status) == [words]
    assert words in log_line(status)
    assert words in summary(status)
    assert LiveView(run.plan).details(status, run.meter.details())["notes"] == [words]
    assert 'wallaroo_source_skipped_records_total{source="Lines"} 1204.0' in text_of(run)


def test_a_replica_is_shown_with_its_silence(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=2)
    assert "wallaroo_replica_silence" not in text_of(run)
    run.meter.identity.replica = lambda: ReplicaStatus("10.0.0.2:7200", 3.5)

    status = status_of(json.loads(json.dumps(status_json(run.status()))))
    assert status.replica == ReplicaStatus("10.0.0.2:7200", 3.5)
    assert 'wallaroo_replica_silence_seconds{replica="10.0.0.2:7200"} 3.5' in text_of(run)
    is_kept = replace(status, checkpoint="/c", is_durable=True, durability="replicated")
    assert "/c (durability replicated, copy at 10.0.0.2:7200)" in summary(is_kept)


def test_ingresses_on_other_hosts_are_shown(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=2)
    assert "wallaroo_ingress_disconnected" not in text_of(run)
    began = run.status().started_at
    run.meter.identity.ingresses = lambda: (
        IngressStatus("edge", True, began, "", 3, 7),
        IngressStatus("west", False, began, "ingress 'west' is disconnected (...)", 0, 40),
    )

    status = status_of(json.loads(json.dumps(status_json(run.status()))))
    assert [one.name for one in status.ingresses] == ["edge", "west"]
    assert 'wallaroo_ingress_disconnected_seconds{ingress="edge"} 0.0' in text_of(run)
    before_s = run.status().elapsed_s
    since = text_of(run).split('wallaroo_ingress_disconnected_seconds{ingress="west"} ')[1]
    after_s = run.status().elapsed_s
    assert before_s >= 2.0
    assert before_s - 0.001 <= float(since.split()[0]) <= after_s + 0.001
    assert 'wallaroo_ingress_backlog_events{ingress="west"} 40.0' in text_of(run)
    lines = ingress_lines(status)
    assert lines[0].startswith("ingress 'edge' joined since ")
    assert lines[1].startswith("ingress 'west' DISCONNECTED since ")
    assert lines[1].endswith(", 0 clients, 40 events not processed")


def test_connections_that_were_closed_are_shown(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=2)
    run.meter.counts.note("Lines", {REJECTED: 3})

    assert notes(run.status()) == ["Lines: 3 connections were closed for what they sent"]
    assert 'wallaroo_source_rejected_connections_total{source="Lines"} 3.0' in text_of(run)


def test_what_steps_leave_out_is_wherever_the_status_is_shown(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=61)
    run.meter.set_losses((StepLosses("count", {"filtered": 3, "late": 20}, 25, 100, WARNING),))
    status = status_of(json.loads(json.dumps(status_json(run.status()))))
    words = "left out in count: 3 filtered, 20 late, 5 late with a place of their own"

    assert status.losses == run.status().losses
    assert notes(status) == [WARNING]
    assert words in log_line(status)
    assert WARNING in log_line(status)
    assert words.removeprefix("left out ") in summary(status)
    assert WARNING in summary(status)
    text = text_of(run)
    assert 'wallaroo_step_dropped_events_total{reason="late",step="count"} 20.0' in text
    assert 'wallaroo_step_dropped_events_total{reason="filtered",step="count"} 3.0' in text
    skipped = 'wallaroo_step_dropped_events_total{reason="skipped",step="split into words"} 3.0'
    assert skipped in text
    assert 'wallaroo_step_late_events_total{step="count"} 25.0' in text
    assert 'wallaroo_step_late_ratio{step="count"} 0.25' in text


def test_a_counter_at_zero_is_no_note(tmp_path: Path) -> None:
    run = BusyRun(tmp_path, seconds=2)
    run.meter.counts.note("Lines", {SKIPPED: 0})
    assert notes(run.status()) == []


def test_lags_and_processes_are_wherever_the_status_is_shown(tmp_path: Path) -> None:
    """Through JSON, as `wallaroo status` reads it; processes of one name are added up."""
    run = BusyRun(tmp_path, seconds=2)
    at = run.status()
    lags = {"t-0": 0, "t-1": 12_000, "t-2": 70}
    source = replace(at.sources[0], lags=lags, group="wallaroo-words")
    rich = replace(at, sources=(source,), processes=PROCESSES, cpu_s={"worker": 9.0})

    status = status_of(json.loads(json.dumps(status_json(rich))))
    assert lag_lines(status, 6) == ["lag of Lines, group wallaroo-words: t-1 12,000, t-2 70"]
    assert lag_lines(status, 1) == ["lag of Lines, group wallaroo-words: t-1 12,000, 1 more"]
    assert lag_lines(at, 6) == []
    assert process_lines(status) == [
        "processes: driver 90.0 MiB, 0.1 cores; 2 workers 300.0 MiB, 1.2 cores"
    ]
    text = exposition(run.plan, status, run.meter.details()).decode()
    for line in (
        'wallaroo_source_info{at="tcp 127.0.0.1:7010",group="wallaroo-words",source="Lines"} 1.0',
        'wallaroo_source_partition_lag_events{partition="t-1",source="Lines"} 12000.0',
        'wallaroo_processes{process="worker"} 2.0',
        'wallaroo_process_resident_bytes{process="worker"} 3.145728e+08',
        'wallaroo_process_cpu_seconds_total{process="worker"} 9.0',
    ):
        assert line in text


def text_of(run: BusyRun) -> str:
    return exposition(run.plan, run.status(), run.meter.details()).decode()
