"""Every view as an operator finds it: wide, on a phone, light and dark, with faults; accessible."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.sampling import sampled
from tests.unit.monitoring.dashboard.fakes import BusyRun
from tests.unit.monitoring.dashboard.pages import assert_nothing_is_cut, expect, serious_problems

SIZES = {"wide": (1400, 900), "phone": (390, 844)}
AWAY = (
    "source 'clicks': Kafka at k1.example:9092,k2.example:9092 is unavailable (Failed to get "
    "metadata: Local: Broker transport failure), since 09:11:07 UTC"
)
SIGNS = {
    "overview": " in this run",
    "pipeline": "Where the time goes",
    "workers": "Spark's JVM",
    "state": "people",
    "errors": "Left out by step",
    "batches": "continuing from commit 41",
}
WAIT_MS = 30_000


@pytest.fixture
def faulty(busy: BusyRun) -> BusyRun:
    """The run with late events, partitions that lag, and brokers that are away."""
    busy.lose_events()
    busy.lag()
    busy.waits = AWAY
    busy.tick()
    return busy


@pytest.fixture
def look(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A size and a colour scheme."""
    found: tuple[str, str] = getattr(request, "param", ("wide", "light"))
    return found


@pytest.fixture
def page(chromium: Any, link: str, faulty: BusyRun, look: tuple[str, str]) -> Iterator[Any]:
    width, height = SIZES[look[0]]
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme=look[1],
        timezone_id="Asia/Kolkata",
        reduced_motion="reduce",
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    page.goto(link)
    page.wait_for_selector("#link.live")
    yield page
    context.close()
    assert wrong == []


@pytest.mark.parametrize(
    "look",
    sampled([("wide", "light"), ("phone", "dark")], [("wide", "dark"), ("phone", "light")]),
    ids="-".join,
    indirect=True,
)
def test_every_view_is_accessible_and_whole(
    page: Any, axe: str, look: tuple[str, str], save_screen: Callable[..., None]
) -> None:
    for view, sign in SIGNS.items():
        page.locator(f"nav a[data-view={view}]").click()
        page.get_by_text(sign).first.wait_for()
        if view == "overview":  # its charts are drawn when their history has come
            expect(page.locator(".chart:not(:has(canvas))")).to_have_count(0, timeout=WAIT_MS)
        save_screen(page, f"{view}-{'-'.join(look)}", is_whole=True)
        assert serious_problems(page, axe) == [], view
        assert_nothing_is_cut(page)


def test_the_cause_of_a_wait_is_shown_and_announced_once(page: Any) -> None:
    """Its duration changes each second; it is read out again when the cause changes."""
    banner = page.locator("#banner", has_text="Waiting for source 'clicks': Kafka at k1.example")
    banner.wait_for()
    announced = page.locator("#announced")
    assert announced.get_attribute("aria-live") == "polite"
    assert announced.text_content() == banner.text_content()


def test_a_duration_that_grows_is_not_announced_again(page: Any, faulty: BusyRun) -> None:
    page.locator("#announced", has_text="since 09:11:07").wait_for(state="attached")
    faulty.waits = AWAY.replace("09:11:07", "09:11:09")
    page.locator("#banner", has_text="since 09:11:09").wait_for()
    assert "since 09:11:07" in page.locator("#announced").text_content()
    faulty.waits = "batch 7 to end"
    page.locator("#announced", has_text="batch 7 to end").wait_for(state="attached")


def test_the_title_names_application_view_and_trouble(page: Any) -> None:
    expect(page).to_have_title("(waiting) Word Count · Overview", timeout=WAIT_MS)
    page.locator("nav a[data-view=workers]").click()
    expect(page).to_have_title("(waiting) Word Count · Workers", timeout=WAIT_MS)


def test_times_are_in_one_form_and_their_zone_is_named(page: Any) -> None:
    page.get_by_text("Times are in UTC+05:30.").wait_for()
    card = page.locator("section", has=page.get_by_role("heading", name="Event time"))
    shown = card.locator("td[data-title=watermark]").inner_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown.strip()), shown


def test_a_chart_has_its_values_as_a_table(page: Any) -> None:
    chart = page.locator("section", has=page.get_by_role("heading", name="Latency, receipt"))
    chart.get_by_text("Values as a table").click()
    region = chart.get_by_role("region", name="Latency, receipt to output")
    region.get_by_role("row").nth(10).wait_for()  # drawn when it is opened and its history has come
    assert region.get_by_role("columnheader").all_inner_texts()[0].lower() == "time"
    assert "ms" in region.inner_text()
    assert chart.get_by_role("img", name="Latency, receipt to output").count() == 1


def test_lag_by_partition_and_processes_are_shown(page: Any) -> None:
    lags = page.get_by_role("region", name="Lag by partition")
    assert "clicks-1" in lags.get_by_role("row").nth(1).inner_text()
    assert "48,000" in lags.get_by_role("row").nth(1).inner_text()
    assert "wallaroo-Lines" in lags.inner_text()
    page.locator("nav a[data-view=workers]").click()
    processes = page.locator("section", has=page.get_by_role("heading", name="Processes"))
    processes.get_by_role("cell", name="640 MiB").wait_for()
