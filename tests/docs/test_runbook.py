"""docs/runbook.md: each incident names tests that exist; those that no other test goes through are
here, with real processes and without Spark.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
WAIT_S = 400.0
Eventually = Callable[..., None]

TOTALS = """\
import wallaroo
from wallaroo.serdes import Json


class Total:
    amount = 0


@wallaroo.state_computation(name="total", state=Total)
def add(order, total):
    total.amount += order["amount"]
    return f"{order['user']} {total.amount}"


def application_setup(args):
    orders = wallaroo.source(
        "orders", wallaroo.FileSourceConfig("orders", "orders.jsonl", Json().decoder)
    )
    by_user = wallaroo.key_extractor(lambda order: order["user"])
    totals = wallaroo.FileSinkConfig("totals.txt", form="lines", name="totals")
    return wallaroo.build_application("totals", orders.key_by(by_user).to(add).to_sink(totals))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an application that has processed three orders, and its checkpoint."""
    place = tmp_path / "host"
    place.mkdir()
    (place / "totals.py").write_text(TOTALS)
    order(place, "ann", 3)
    order(place, "bob", 1)
    order(place, "ann", 4)
    assert run(place)[0] == 0
    return place


def order(folder: Path, user: str, amount: int) -> None:
    with (folder / "orders.jsonl").open("a") as orders:
        orders.write(f'{{"user": "{user}", "amount": {amount}}}\n')


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def run(folder: Path, *options: str) -> tuple[int, str]:
    return wallaroo(folder, "wallaroo.cli.in_process", "totals.py", "--no-live", *options)


def wallaroo(folder: Path, module: str, *arguments: str) -> tuple[int, str]:
    """Run a command on the checkpoint ``totals``; return its exit code and all that it printed."""
    is_named = {"totals", "--checkpoint"} & set(arguments)
    at = arguments if is_named else (*arguments, "--checkpoint", "totals")
    done = subprocess.run(
        command(module, *at),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def totals(folder: Path) -> list[str]:
    return sorted((folder / "totals.txt").read_text().splitlines())


def incidents() -> list[str]:
    return RUNBOOK.split("\n## ")[1:-1]


@pytest.mark.parametrize("incident", incidents(), ids=lambda text: text.splitlines()[0])
def test_every_incident_names_its_tests(incident: str) -> None:
    named = TEST.findall(incident)

    assert named
    for file, test in named:
        tree = ast.parse((ROOT / file).read_text())
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert test in functions, f"{file} has no {test}"


def test_a_killed_driver_continues_with_the_same_command(
    folder: Path, eventually: Eventually
) -> None:
    order(folder, "ann", 5)
    slow = TOTALS.replace("    total.amount", "    import time; time.sleep(60)\n    total.amount")
    (folder / "totals.py").write_text(slow)
    with (folder / "log").open("w") as log:
        driver = subprocess.Popen(
            command("wallaroo.cli.in_process", "totals.py", "--no-live", "--checkpoint", "totals"),
            cwd=folder,
            env=ENVIRONMENT,
            stdout=log,
            stderr=log,
        )
    eventually(lambda: "running" in (folder / "log").read_text(), "it runs")
    driver.kill()
    driver.wait()

    (folder / "totals.py").write_text(TOTALS)

    code, status = wallaroo(folder, "wallaroo", "status", "totals")
    assert code == 1
    assert "has ended without a stop" in status

    code, log_text = run(folder)
    assert (code, "continuing from commit" in log_text) == (0, True)
    assert totals(folder) == ["ann 12", "ann 3", "ann 7", "bob 1"]


def test_a_checkpoint_continues_on_another_host(folder: Path) -> None:
    """Another path; without the view, which belongs to a host."""
    other = folder.parent / "other host"
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("view"))
    shutil.rmtree(folder)
    order(other, "bob", 2)

    code, log = run(other)

    assert (code, "continuing from commit" in log) == (0, True)
    assert totals(other) == ["ann 3", "ann 7", "bob 1", "bob 3"]


def test_a_poison_message_is_set_aside(folder: Path) -> None:
    with (folder / "orders.jsonl").open("a") as orders:
        orders.write('{"user": "ann"}\n')
    order(folder, "ann", 1)
    for _ in range(2):  # a restart meets the same event
        code, log = run(folder)
        assert (code, "step 'total' failed" in log, "KeyError: 'amount'" in log) == (3, True, True)

    policy = 'state=Total, on_error="dead-letter"'
    (folder / "totals.py").write_text(TOTALS.replace("state=Total", policy))
    letters = ("--dead-letters", "dead.jsonl")
    code, verdict = wallaroo(folder, "wallaroo", "plan", "totals.py", *letters)
    assert (code, "compatible" in verdict, "incompatible" in verdict) == (0, True, False)
    assert run(folder, *letters)[0] == 0

    assert totals(folder) == ["ann 3", "ann 7", "ann 8", "bob 1"]
    assert (folder / "dead.jsonl").read_text().count("KeyError: 'amount'\"") == 1


def test_late_events_are_warned_of_with_the_probable_reason(folder: Path) -> None:
    timed = TOTALS.replace(
        """orders.key_by(by_user).to(add)""",
        """orders.with_event_time(lambda order: float(order["amount"]), delay=wallaroo.seconds(1),
        allow_before_1980=True).key_by(by_user).in_order().to(add)""",
    )
    (folder / "timed.py").write_text(timed.replace("totals.txt", "timed.txt"))
    for number in range(100):
        order(folder, "cy", 1000 + number if number % 2 else 500 + number)

    code, log = wallaroo(
        folder, "wallaroo.cli.in_process", "timed.py", "--no-live", "--checkpoint", "timed"
    )

    assert code == 0, log
    warning = re.search(r"\d+% of the events of step '.*' are late \(.*\).*Probably (.*)", log)
    assert warning is not None, log


def test_a_damaged_file_is_named_and_a_restored_one_is_whole(folder: Path) -> None:
    damaged = sorted((folder / "totals" / "deltas").iterdir())[0]
    backup = damaged.read_bytes()
    middle = len(backup) // 2
    damaged.write_bytes(backup[:middle] + bytes([backup[middle] ^ 1]) + backup[middle + 1 :])
    shutil.rmtree(folder / "totals" / "view")

    code, verified = wallaroo(folder, "wallaroo", "state", "verify", "totals")
    assert (code, f"DAMAGED deltas/{damaged.name}" in verified) == (1, True)
    order(folder, "ann", 5)
    code, refused = run(folder)
    assert (code, f"{damaged.name} is corrupt" in refused) == (1, True)

    damaged.write_bytes(backup)
    code, verified = wallaroo(folder, "wallaroo", "state", "verify", "totals")
    assert (code, "nothing is damaged" in verified) == (0, True)
    assert run(folder)[0] == 0
    assert totals(folder) == ["ann 12", "ann 3", "ann 7", "bob 1"]
