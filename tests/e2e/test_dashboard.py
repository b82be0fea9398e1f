"""The dashboard of a real application under load, while a worker is killed and a receiver stops."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from wallaroo.cli.application.targets import target_of
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.testing.verify.trial.processes import Kind, find, kill

pytestmark = [pytest.mark.spark, pytest.mark.java]

SOURCES = str(Path(__file__).resolve().parents[2] / "src")
LINES = "the quick brown fox jumps over the lazy dog\nwe the people\n" * 50
LIMIT_S = 400.0  # a busy machine must not reach it
Eventually = Callable[..., None]


@contextmanager
def command(folder: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    """A ``wallaroo`` command in a session of its own, stopped at the end."""
    log = (folder / f"{words[0]}.log").open("ab")
    process = subprocess.Popen(
        [sys.executable, "-m", "wallaroo", *map(str, words)],
        stdout=log,
        stderr=log,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": SOURCES},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()


def ask(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return json.loads(reply.read()) if reply.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


def test_the_dashboard_shows_load_a_killed_worker_and_a_receiver_that_stopped(
    chromium: Any, tmp_path: Path, eventually: Eventually, save_screen: Callable[..., None]
) -> None:
    in_port, out_port, status_port = free_ports(3)
    lines = tmp_path / "lines"
    lines.write_text(LINES)

    def receiver() -> Any:
        """One that says how much it has: this application's sink resumes there."""
        return command(
            tmp_path, "receive", "--listen", f"127.0.0.1:{out_port}", "--resume",
            "--out", tmp_path / "received", "--quiet",
        )  # fmt: skip

    with ExitStack() as stack:
        first_receiver = stack.enter_context(receiver())
        run = stack.enter_context(
            command(
                tmp_path, "run", "--no-live", "--master", "local[2]", "--status",
                f"127.0.0.1:{status_port}", "--checkpoint", tmp_path / "state",
                "tests.verification.applications.word_count",
                "--in", f"Lines@127.0.0.1:{in_port}", "--out", f"127.0.0.1:{out_port}",
            )
        )  # fmt: skip
        eventually(lambda: ask(status_port, "/healthz"), "it answers while it starts")
        context = chromium.new_context(viewport={"width": 1280, "height": 860})
        stack.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(LIMIT_S * 1000)
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(target_of(f"127.0.0.1:{status_port}").link)
        eventually(lambda: ask(status_port, "/readyz"), "it is ready")
        stack.enter_context(
            command(tmp_path, "send", "--to", f"127.0.0.1:{in_port}", "--file", lines,
                    "--rate", 5000, "--repeat", 0, "--quiet")
        )  # fmt: skip

        page.locator("#state", has_text="running").wait_for()
        page.wait_for_selector(".chart canvas")
        page.locator("nav a[data-view=pipeline]").click()
        page.get_by_text("Where the time goes").wait_for()
        page.locator(".card table td", has_text="count").first.wait_for()  # steps were sampled
        page.locator("nav a[data-view=state]").click()
        page.get_by_role("button", name="people").first.click()
        page.get_by_text('"count"').first.wait_for()

        workers = find(run.pid)[Kind.WORKER]
        assert workers
        kill(workers[0])
        batches = ask(status_port, "/status")["batches"]
        eventually(
            lambda: ask(status_port, "/status")["batches"] > batches + 2,
            "batches continue after a worker was killed",
        )

        page.locator("nav a[data-view=overview]").click()
        page.locator("#banner").wait_for(state="hidden")
        first_receiver.kill()
        page.locator("#banner", has_text="Waiting for").wait_for()
        stack.enter_context(receiver())
        page.locator("#banner").wait_for(state="hidden")
        assert page.locator("#link.live").count() == 1
        assert wrong == []
        save_screen(page, "word-count")
