"""The dashboard in a real browser, wide and narrow, fed by a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sampling import sampled
from tests.unit.monitoring.dashboard.fakes import BusyRun
from tests.unit.monitoring.dashboard.pages import expect
from wallaroo.monitoring.metrics.status import StandbyStatus, StepUpgrade
from wallaroo.monitoring.status_api.server import StatusServer

VIEWS = ("overview", "pipeline", "workers", "state", "errors", "batches")
BYTES_MAX = 1 << 20
STATIC = Path(__file__).resolve().parents[4] / "src/wallaroo/monitoring/dashboard/static"
WAIT_MS = 15_000


@pytest.fixture(params=sampled([400], [1280]))
def page(chromium: Any, address: str, link: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page whose errors and requests to other places fail the test."""
    context = chromium.new_context(viewport={"width": request.param, "height": 800})
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: said.type == "error" and wrong.append(said.text))
    page.on("request", lambda sent: sent.url.startswith(address) or wrong.append(sent.url))
    page.goto(link)
    page.wait_for_selector("#link.live")
    yield page
    context.close()
    assert wrong == []


def go(page: Any, view: str) -> None:
    page.locator(f"nav a[data-view={view}]").click()
    page.wait_for_selector(f"nav a[data-view={view}][aria-current]")


def test_every_view_shows_the_run_and_fits_the_width(page: Any) -> None:
    expected = {
        "overview": " in this run",
        "pipeline": "Where the time goes",
        "workers": "worker-2",
        "state": "people",
        "errors": "UnicodeDecodeError",
        "batches": "continuing from commit 41",
    }
    for view in VIEWS:
        go(page, view)
        page.get_by_text(expected[view]).first.wait_for()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"], view


def test_columns_and_messages_say_what_they_count(page: Any) -> None:
    latency = page.locator(
        "section", has=page.get_by_role("heading", name="Latency since the start")
    )
    latency.get_by_role("columnheader", name="events", exact=True).wait_for()
    go(page, "workers")
    page.get_by_text("events/s, all stages").first.wait_for()
    go(page, "state")
    page.get_by_text("people").first.wait_for()
    page.get_by_label("Key contains").fill("no such key")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("No key contains that.").wait_for()


def test_watermarks_are_shown_with_what_they_go_by(page: Any) -> None:
    card = page.locator("section", has=page.get_by_role("heading", name="Event time"))
    card.get_by_text("source 'words', partition 3", exact=True).wait_for()
    card.get_by_text("2.50 s", exact=True).wait_for()


def test_what_holds_time_back_is_a_line_and_idle_is_no_lag(page: Any, busy: BusyRun) -> None:
    card = page.locator("section", has=page.get_by_role("heading", name="Event time"))
    card.get_by_text("Held back by source 'words', partition 3: 2.50 s behind").wait_for()
    busy.go_idle()
    card.get_by_text("All sources are idle, so event time follows the clock.").wait_for()
    card.get_by_text("idle", exact=True).wait_for()
    assert card.get_by_text("behind the clock.").count() == 0


def test_a_standby_says_who_leads_and_how_far_it_is_behind(page: Any, busy: BusyRun) -> None:
    busy.meter.identity.standby = StandbyStatus("process 7 on host-a", 3, 0.4, 3.0, 120, 118)
    words = (
        "Standby: process 7 on host-a leads (epoch 3); its lease moved 0.4 s ago; the state here "
        "is 2 commits behind commit 120"
    )
    page.locator("#banner", has_text=words).wait_for()
    busy.meter.identity.standby = None
    page.locator("#banner", has_text=words).wait_for(state="hidden")


def test_text_of_the_application_never_becomes_markup(page: Any) -> None:
    for view in ("errors", "workers"):
        go(page, view)
        page.get_by_text("window.hurt").first.wait_for()
    go(page, "state")
    page.get_by_role("button", name="<b>bold</b>").click()
    page.get_by_text('"<b>bold</b>"').wait_for()
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main script, main b b").count() == 0


def test_an_object_opens_with_its_history_by_commit(page: Any) -> None:
    go(page, "state")
    page.get_by_label("Key contains").fill("peop")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("button", name="people").click()
    page.get_by_text('"count": 3').wait_for()
    page.get_by_text("commit 0").click()
    page.get_by_text('"count": 1').wait_for()


def test_charts_hold_ten_minutes_and_other_spans_can_be_chosen(page: Any) -> None:
    page.wait_for_selector(".chart canvas")
    assert page.locator(".chart canvas").count() == 4
    page.get_by_role("button", name="4 hours", exact=True).click()
    page.wait_for_selector("button[aria-pressed=true]:has-text('4 hours')")
    assert page.locator(".chart canvas").count() == 4


def test_times_below_the_chart_of_one_moment_differ(page: Any) -> None:
    page.wait_for_selector(".chart canvas")
    labels = page.evaluate(
        """async () => {
          const { Chart } = await import("/ui/charts.js");
          const series = [{ label: "rate", column: "rate", color: "--c1" }];
          const chart = new Chart("one", series, String);
          document.querySelector("main").append(chart.element);
          chart.show(["at", "rate"], [[1767225600, 3]]);
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const labels = chart.plot.axes[0]._values;
          chart.observer.disconnect();
          chart.element.remove();
          return labels;
        }"""
    )
    assert len(labels) > 1
    assert len(set(labels)) == len(labels), labels


def test_upgrades_of_state_are_shown(page: Any, busy: BusyRun) -> None:
    busy.meter.set_upgrades((StepUpgrade("count word", 2, 1204, 88, is_counted=True),))
    go(page, "state")
    row = page.get_by_role("row", name="count word")
    row.wait_for()
    assert row.get_by_role("cell").all_inner_texts() == [
        "count word",
        "1,204",
        "88",
        "in the background",
    ]


def test_it_can_be_used_by_keyboard_alone(page: Any) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("nav a[data-view=pipeline]").focus()
    page.keyboard.press("Enter")
    node = page.locator(".node.state")
    node.wait_for()
    node.focus()
    page.keyboard.press("Enter")
    page.get_by_text("Hot keys of its stage").wait_for()
    assert node.get_attribute("aria-pressed") == "true"


def test_the_page_goes_on_when_nothing_flows_and_says_what_is_waited_for(
    page: Any, busy: BusyRun
) -> None:
    busy.is_flowing = False
    busy.waiting_for = "127.0.0.1:7002 (connection refused)"
    words = "Waiting for tcp: 127.0.0.1:7002 (connection refused)"
    page.locator("#banner", has_text=words).wait_for()
    before = page.locator("#uptime").inner_text()
    expect(page.locator("#uptime")).not_to_have_text(before, timeout=WAIT_MS)
    busy.meter.progress.damaged = {"snapshots/12-40.snap": "its checksum is wrong"}
    go(page, "errors")
    page.get_by_text("snapshots/12-40.snap: its checksum is wrong").wait_for()


def test_the_page_says_when_the_application_is_gone(chromium: Any, server: StatusServer) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.address[1]}/?token={server.token}")
    page.wait_for_selector("#link.live")
    server.close()
    page.locator("#banner", has_text="The application does not answer").wait_for(timeout=WAIT_MS)
    context.close()


def test_light_and_dark_follow_the_system_and_can_be_switched(chromium: Any, link: str) -> None:
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(link)
    page.wait_for_selector("#link.live")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(colour)
    page.get_by_role("button", name="Switch between light and dark").click()
    assert page.evaluate(colour) != dark
    context.close()


def test_the_files_are_small_and_load_nothing_from_elsewhere() -> None:
    assert sum(file.stat().st_size for file in STATIC.iterdir()) < BYTES_MAX
    for file in STATIC.glob("*.*"):
        text = file.read_text()
        if file.name.startswith("uplot"):
            continue
        foreign = text.replace("http://www.w3.org/", "")
        assert "http://" not in foreign, file.name
        assert "https://" not in foreign, file.name
        assert "innerHTML" not in text, file.name
