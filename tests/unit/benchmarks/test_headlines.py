"""The headline table and the charts of benchmarks/README.md."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.pages import charts, report
from benchmarks.pages.headlines import HEADLINES, NOT_MEASURED, ROWS_MAX, filled, markdown

REPORT = {
    "began": "2026-11-22 16:31:44 +0000",
    "command": "python -m benchmarks.latency.worker_killed --json out.json",
    "figures": [{"name": "longest", "value": 0.44114}],
}


def test_there_are_at_most_fifteen_headlines() -> None:
    assert len(HEADLINES) <= ROWS_MAX


def test_a_headline_has_its_figure_its_command_and_its_day() -> None:
    table = markdown({"healing": REPORT}, lambda each: each["command"].partition(" --json")[0])

    assert "| 0.441 s |  | `python -m benchmarks.latency.worker_killed` | 2026-11-22 |" in table


def test_a_figure_that_a_report_lacks_is_shown_as_not_measured() -> None:
    assert filled("{a: p50} ms, {a: p99} ms", {"a: p50": 1.0}) == NOT_MEASURED


def test_every_headline_and_bar_has_a_figure_in_the_results() -> None:
    reports = {name: each for name, (_, each) in report.load().items()}

    assert NOT_MEASURED not in markdown(reports, lambda each: each["command"])
    for chart in charts.CHARTS.values():
        bars = [bar for group in chart.groups for bar in group]
        drawn = ElementTree.fromstring(charts.drawn(chart, reports))
        assert len(drawn.findall("{*}rect")) == 1 + len(bars)


def test_a_bar_is_as_long_as_its_share_of_the_largest_figure() -> None:
    chart = charts.Chart("t", "s", ((charts.Bar("a", "r", "x"), charts.Bar("b", "r", "y")),))
    figures = [{"name": "x", "value": 2.0}, {"name": "y", "value": 1.0}]
    drawn = ElementTree.fromstring(charts.drawn(chart, {"r": {**REPORT, "figures": figures}}))

    widths = [float(bar.get("width", "0")) for bar in drawn.findall("{*}rect")[1:]]
    assert widths == [charts.BAR_WIDTH_MAX, charts.BAR_WIDTH_MAX / 2]


def test_the_pages_and_charts_are_those_of_the_results() -> None:
    """Written by ``python -m benchmarks.pages.report``."""
    assert [page.name for page, text in report.pages().items() if page.read_text() != text] == []
