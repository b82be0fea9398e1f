"""Failed events as a person sees them: in the table, the log line and the summary; and the option
that says where they go.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.cli.run.fakes import STATUS
from wallaroo.api.application import Application
from wallaroo.cli.main import main
from wallaroo.cli.run import command
from wallaroo.cli.run.table import live_table
from wallaroo.cli.run.text import log_line, summary
from wallaroo.engine.failures.policies import Sample
from wallaroo.errors import PeerError
from wallaroo.monitoring.metrics.meter import RunMeter
from wallaroo.monitoring.metrics.status import ErrorCount

FAILED = replace(
    STATUS,
    errors=(
        ErrorCount("parse", 1_204, 0, "a.py:7: ValueError: no: 'x'"),
        ErrorCount("decode", 0, 3, "a.py:2: KeyError: 'id': frame of 2 bytes: ff 00"),
    ),
)
APPLICATION = """
import wallaroo

@wallaroo.decoder(on_error="dead-letter")
def decode(payload):
    return payload

def application_setup(args):
    pipeline = wallaroo.source("in", wallaroo.FileSourceConfig("in", "in.txt", decode))
    return wallaroo.build_application("a", pipeline.to_sink(wallaroo.StdoutSinkConfig()))
"""


def test_the_log_line_has_the_counts_by_step() -> None:
    assert "failed in parse: 1,204 skipped | failed in decode: 3 dead letters" in log_line(FAILED)
    assert "failed in" not in log_line(STATUS)


def test_the_summary_has_the_last_failure_too() -> None:
    assert "  failed in parse: 1,204 skipped; last at a.py:7: ValueError: no: 'x'\n" in summary(
        FAILED
    )


def test_the_table_has_a_row_for_each_step_that_failed() -> None:
    out = io.StringIO()
    Console(file=out, width=140).print(live_table(FAILED))

    row = next(line for line in out.getvalue().splitlines() if "1,204" in line and "parse" in line)
    assert "ValueError: no: 'x'" in row


def test_the_status_counts_committed_batches_and_keeps_the_last_failure() -> None:
    meter = RunMeter("a", 0.0)
    for number in (1, 2):
        sample = Sample("parse", "skip", "a.py:7", f"event {number}", "ValueError: no", 1)
        meter.events_failed(0, {("parse", "skip"): 2}, [sample])

    assert meter.status(1.0).errors == (
        ErrorCount("parse", 4, 0, "a.py:7: ValueError: no: event 2"),
    )


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / f"prices_{tmp_path.name}.py"  # a module's name is taken once
    file.write_text(APPLICATION)
    return file


def test_run_gives_the_application_the_dead_letter_sink_of_the_command_line(
    prices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Application] = []

    def launch(application: Application, options: Any) -> Any:
        started.append(application)
        raise PeerError("enough")

    monkeypatch.setattr(command, "launch", launch)

    main(["run", str(prices), "--dead-letters", "dead.jsonl", "--quiet"])

    letters = started[0].plan.sinks[-1]
    assert (letters.name, letters.config.label) == ("dead-letters", "file dead.jsonl")


def test_run_says_at_once_that_dead_letters_have_no_sink(
    prices: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(prices), "--quiet"]) != 0

    said = capsys.readouterr().err
    assert "decoder 'decode'" in said
    assert "or run with --dead-letters PATH" in said
