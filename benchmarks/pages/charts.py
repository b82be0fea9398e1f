"""Bar charts (SVG) of headline figures, drawn from the reports in ``results/``.

Where it runs: pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from benchmarks.lib.machine import number

WIDTH = 720
LABEL_WIDTH = 250
BAR_WIDTH_MAX = 340
BAR_HEIGHT, BAR_STEP = 20, 28
TOP, GROUP_GAP = 64, 16
OURS, OTHERS = "#3f51b5", "#9aa0ac"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; the figure ``name`` of the report ``report``."""

    label: str
    report: str
    name: str
    is_ours: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """Groups of bars that share a unit and a scale."""

    title: str
    unit: str
    groups: tuple[tuple[Bar, ...], ...]


def _kafka(application: str, *peers: str) -> tuple[Bar, ...]:
    ours = Bar(f"{application}: wallaroo", "kafka_peers", f"{application}, Wallaroo")
    others = (Bar(peer, "kafka_peers", f"{application}, {peer}", False) for peer in peers)
    return (ours, *others)


def _cpu(application: str) -> tuple[Bar, ...]:
    peer = f"{application}, Bytewax, tuned: CPU per event"
    return (
        Bar(f"{application}: low latency", "event_cost", _cpu_name(application, "resident")),
        Bar("micro-batch", "event_cost", _cpu_name(application, "micro-batch")),
        Bar("Bytewax, tuned", "event_cost", peer, False),
    )


def _cpu_name(application: str, host: str) -> str:
    return f"{application}, {host}, durable: CPU per event"


def _latency(rate: int, report: str) -> tuple[Bar, ...]:
    return tuple(
        Bar(f"{rate:,} events/s: {percentile}", report, f"low, {rate}/s: {percentile}")
        for percentile in ("p50", "p99", "p99.9")
    )


CHARTS = {
    "kafka.svg": Chart(
        "From Kafka, two cores, beside others on the same broker",
        "records/s",
        (
            _kafka("Market Spread", "Bytewax", "plain PySpark", "Quix Streams"),
            _kafka("Word Count", "Bytewax", "Quix Streams"),
        ),
    ),
    "latency.svg": Chart(
        "From a TCP sender to a TCP receiver, ten minutes, --latency low",
        "ms",
        (
            _latency(100, "latency_ten_minutes"),
            _latency(5000, "latency_ten_minutes"),
            _latency(100000, "latency_ten_minutes_100000"),
        ),
    ),
    "cpu.svg": Chart(
        "CPU time per event, all processes, checkpoint on (Bytewax: none)",
        "us",
        (_cpu("Market Spread"), _cpu("Word Count")),
    ),
}


def drawn(chart: Chart, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the chart as SVG, with the days of its figures; bars without a figure are left out."""
    values = _values(chart, reports)
    names = sorted({bar.report for bar in values})
    days = sorted({str(reports[name]["began"])[:10] for name in names})
    note = f"{chart.unit}; {', '.join(names)}; measured {', '.join(days)}"
    largest = max(values.values(), default=1.0)
    lines = [_text(24, 28, chart.title, "title"), _text(24, 48, note, "note")]
    top = TOP
    for group in chart.groups:
        for bar in filter(values.__contains__, group):
            lines += _bar(bar, values[bar], largest, top)
            top += BAR_STEP
        top += GROUP_GAP
    return _page(lines, top, chart.title)


def _values(chart: Chart, reports: Mapping[str, Mapping[str, Any]]) -> dict[Bar, float]:
    values = {}
    for bar in (bar for group in chart.groups for bar in group):
        for figure in reports.get(bar.report, {}).get("figures", ()):
            if figure["name"] == bar.name:
                values[bar] = float(figure["value"])
    return values


def _bar(bar: Bar, value: float, largest: float, top: int) -> Sequence[str]:
    width = max(1.0, value / largest * BAR_WIDTH_MAX)
    colour = OURS if bar.is_ours else OTHERS
    middle = top + BAR_HEIGHT - 5
    return (
        _text(LABEL_WIDTH - 8, middle, bar.label, "label"),
        f'<rect x="{LABEL_WIDTH}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2" '
        f'fill="{colour}"/>',
        _text(LABEL_WIDTH + width + 8, middle, number(value), "value"),
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>'


def _page(lines: Sequence[str], height: int, title: str) -> str:
    style = (
        "text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-size: 16px; "
        "font-weight: 600 } .note { font-size: 12px; fill: #57606a } .label { text-anchor: end }"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-label="{escape(title)}">',
            f"<style>{style}</style>",
            f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
            *lines,
            "</svg>\n",
        ]
    )
