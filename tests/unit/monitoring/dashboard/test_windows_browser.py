"""The dashboard of a run with windows, joins and timers, in a real browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stored.accounts import SOURCES
from tests.stored.runner import HALF, events
from tests.unit.monitoring.dashboard.pages import assert_nothing_is_cut, serious_problems
from wallaroo.cli.application.targets import target_of
from wallaroo.spark.local_cluster.hosts import free_ports

ROOT = Path(__file__).resolve().parents[4]
LIMIT_S = 400.0
Eventually = Callable[..., None]


def ask(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return json.loads(reply.read()) if reply.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


@pytest.fixture
def status_port(tmp_path: Path, eventually: Eventually) -> Iterator[int]:
    """A run without Spark of an application with every kind of state, half of its input read."""
    port, *ports = free_ports(1 + len(SOURCES))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "wallaroo.cli.in_process"),
                *(str(ROOT / "tests/stored/accounts.py"), "--checkpoint", "checkpoint"),
                *("--status", f"127.0.0.1:{port}", "--ports", ",".join(map(str, ports))),
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                "TMPDIR": str(tmp_path),  # the fixture `registry` looks there
            },
        )
    clients = []
    try:
        eventually(lambda: ask(port, "/readyz"), "it is ready")
        for source, own in zip(SOURCES, ports, strict=True):
            client = socket.create_connection(("127.0.0.1", own))
            clients.append(client)
            for line in events(source)[:HALF]:
                client.sendall(struct.pack(">I", len(line)) + line)
        total = HALF * len(SOURCES)
        eventually(lambda: ask(port, "/status")["events_done"] == total, "all is read")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
        for client in clients:
            client.close()


def test_windows_are_seen_in_pipeline_and_state(
    chromium: Any, status_port: int, axe: str, save_screen: Callable[..., None]
) -> None:
    """Given windows, joins and timers, then steps have rates, and keys show their windows."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(LIMIT_S * 1000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(target_of(f"127.0.0.1:{status_port}").link)
    page.wait_for_selector("#link.live")

    page.locator("nav a[data-view=pipeline]").click()
    steps = page.locator("section.card", has=page.get_by_role("heading", name="Where the time"))
    for step in ("tumbling", "sessions", "timed", "interval", "latest"):
        steps.get_by_role("cell", name=step, exact=True).first.wait_for()
    node = page.get_by_role("button", name="state sessions").first
    assert "events per second" in node.locator("title").text_content()
    node.click()
    page.get_by_text("Hot keys of its stage").wait_for()

    page.locator("nav a[data-view=state]").click()
    page.get_by_label("State step").select_option("tumbling")
    page.get_by_label("Key contains").fill("a")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="a tumbling").click()
    page.get_by_text('"fires": "2020-09-13T12:27:45Z"').first.wait_for()
    save_screen(page, "state-windows")
    page.locator("nav a[data-view=pipeline]").click()
    page.get_by_text("Where the time goes").wait_for()
    save_screen(page, "pipeline-windows")
    assert serious_problems(page, axe) == []
    assert_nothing_is_cut(page)
    page.set_viewport_size({"width": 390, "height": 844})
    save_screen(page, "pipeline-windows-phone", is_whole=True)
    assert_nothing_is_cut(page)
    context.close()
    assert wrong == []
