"""Visits: sum up each visitor's clicks, from the first to half a minute without one.

A file has a click per line, with its own time; clicks may come up to ten seconds out of order.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import wallaroo


@dataclass(frozen=True)
class Click:
    """A visitor looked at a page, at a second of the day."""

    second: float
    visitor: str
    page: str


def application_setup(args: list[str]) -> object:
    """Build the application: a session window per visit -> text."""
    out_host, out_port = wallaroo.tcp_parse_output_addrs(args)[0]
    parser = argparse.ArgumentParser()
    parser.add_argument("--clicks", default="clicks.txt")
    options, _ = parser.parse_known_args(args)

    clicks = wallaroo.source("Clicks", wallaroo.FileSourceConfig("Clicks", options.clicks))
    visits = wallaroo.session_windows(wallaroo.seconds(30)).over(Visit)
    pipeline = (
        clicks.map(read_click)
        .with_event_time(second_of, delay=wallaroo.seconds(10), allow_before_1980=True)
        .key_by(visitor_of)
        .to(visits)
        .to_sink(wallaroo.TCPSinkConfig(out_host, out_port, encode_line))
    )
    return wallaroo.build_application("Visits", pipeline)


def read_click(line: str) -> Click:
    """A line is second, visitor and page."""
    second, visitor, page = line.split()
    return Click(float(second), visitor, page)


def second_of(click: Click) -> float:
    """Clicks carry their time."""
    return click.second


@wallaroo.key_extractor
def visitor_of(click: Click) -> str:
    """Every visitor has visits of their own."""
    return click.visitor


class Visit(wallaroo.Aggregation[Click, list[str], str]):
    """The pages of one visit."""

    def initial_accumulator(self) -> list[str]:
        return []

    def update(self, click: Click, pages: list[str], /) -> None:
        pages.append(click.page)

    def combine(self, left: list[str], right: list[str], /) -> list[str]:
        return left + right

    def output(self, visitor: str, pages: list[str], window: wallaroo.Window) -> str:  # type: ignore[override]  # with the window
        begin, end = window.start / 1e9, window.end / 1e9 - 30
        return f"{visitor} from {begin:g} to {end:g}: {' '.join(sorted(pages))}"


@wallaroo.encoder
def encode_line(line: str) -> str:
    """A line of text for each visit."""
    return f"{line}\n"
