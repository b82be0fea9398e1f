"""Upgrades of state that no event meets: in the background, on all hosts, and through a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wallaroo.checkpoints.inspection.reader import CheckpointReader
from wallaroo.engine.stores.evolution import stored_version

KEYS = 10_000
LIMIT_S = 240.0
HOSTS = {
    "in process": ("wallaroo.cli.in_process",),
    "micro-batch": ("wallaroo.cli.main", "run", "--master", "local[2]", "--host", "micro-batch"),
    "resident": ("wallaroo.cli.main", "run", "--master", "local[2]", "--host", "resident"),
}
APPLICATION = """
import wallaroo
from accounts import Account
from wallaroo.sources import FilesSourceConfig


@wallaroo.decoder
def decode(payload):
    return payload.decode()


@wallaroo.key_extractor
def account_of(event):
    return event


@wallaroo.state_computation("balance", state=Account{timing})
def balance(event, state):
    state.add()
    return f"{{event}} {{sorted(vars(state).items())}}"


@wallaroo.encoder
def encode(line):
    return line


def application_setup(args):
    lines = wallaroo.source("lines", FilesSourceConfig("lines", "in", decode, watch=True))
    sink = wallaroo.FileSinkConfig("out.txt", encoder=encode, form="lines")
    accounts = lines.key_by(account_of).to(balance)
    return wallaroo.build_application("accounts", accounts.to_sink(sink))
"""
FIRST = """
class Account:
    def __init__(self):
        self.cents = 0

    def add(self):
        self.cents += 250
"""
SECOND = """
class Account:
    state_version = 2

    def __init__(self, euros=0.0):
        self.euros = euros

    def add(self):
        self.euros += 2.5
"""
UPGRADE = """

import wallaroo


@wallaroo.upgrade(Account, from_version=1)
def cents_to_euros(fields):
    return Account(fields["cents"] / 100)
"""
WRONG = UPGRADE.replace('fields["cents"]', 'fields["cents"] / (fields["cents"] - 250)')
FILLED = FIRST.replace("self.cents = 0", "self.cents = 0\n        self.owners = []")

Eventually = Callable[..., None]


class Accounts:
    """A folder with the application, its input and its checkpoint."""

    def __init__(self, folder: Path, host: str, timing: str = ""):
        self.folder = folder
        self._command = HOSTS[host]
        (folder / "in").mkdir()
        (folder / "app.py").write_text(APPLICATION.format(timing=timing))

    def deploy(self, accounts: str) -> None:
        """Replace the module of the state class."""
        (self.folder / "accounts.py").write_text(accounts)

    def send(self, name: str, lines: list[str]) -> None:
        """Give the run one more file."""
        (self.folder / "in" / name).write_text("".join(f"{line}\n" for line in lines))

    @contextmanager
    def running(self, fault: str = "") -> Iterator[subprocess.Popen[str]]:
        """Run the application, until the end of the block at the latest."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "WALLAROO_FAULT": fault,
        }
        with (self.folder / "log").open("w") as log:
            run = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    *self._command,
                    "app.py",
                    "--no-live",
                    "--checkpoint",
                    "state",
                ],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            yield run
            if run.poll() is None:
                run.send_signal(signal.SIGTERM)
                run.wait(LIMIT_S)
        except BaseException:
            print(self.log)
            raise
        finally:
            if run.poll() is None:
                run.kill()
            run.wait()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def outputs(self) -> list[str]:
        file = self.folder / "out.txt"
        return file.read_text().splitlines() if file.exists() else []

    def stored(self) -> dict[object, bytes]:
        """Return the stored objects of the newest commit."""
        state = CheckpointReader(self.folder / "state").at()
        groups = (state.group(group) for group in range(state.groups))
        return {
            key: raw for group in groups for (name, key), raw in group.items() if name == "balance"
        }

    def versions(self) -> Counter[int]:
        return Counter(map(stored_version, self.stored().values()))

    def begin(self, eventually: Eventually, keys: int = KEYS) -> None:
        """Let the first version store objects, an event each."""
        self.deploy(FIRST)
        self.send("first.txt", [f"k{number}" for number in range(keys)])
        with self.running() as run:
            eventually(lambda: run.poll() is not None or len(self.outputs) == keys, "state")
            assert run.poll() is None


@pytest.mark.parametrize("timing", ["", ", ttl=wallaroo.hours(1)"], ids=["plain", "ttl"])
def test_a_kill_in_the_middle_loses_and_repeats_nothing(
    tmp_path: Path, eventually: Eventually, wallaroo: Callable[..., tuple[int, str, str]],
    timing: str,
) -> None:  # fmt: skip
    accounts = Accounts(tmp_path, "in process", timing)
    accounts.begin(eventually)
    accounts.deploy(SECOND + UPGRADE)

    killed = Counter({1: KEYS})
    while killed[1] == KEYS:  # on a busy machine the first portion may come later
        with accounts.running("commit.after:3") as run:
            run.wait(LIMIT_S)
        killed = accounts.versions()
        assert run.returncode == -signal.SIGKILL
    assert 0 < killed[1] < KEYS, killed
    assert killed.total() == KEYS

    with accounts.running():
        eventually(lambda: "all objects are of version 2" in accounts.log, "the end")
    assert f"has {killed[1]:,} objects of an earlier form" in accounts.log
    assert f"{killed[1]:,} upgraded; all objects are of version 2" in accounts.log
    assert accounts.versions() == {2: KEYS}
    shown = wallaroo("state", "export", "--json", "--checkpoint", tmp_path / "state")[1]
    values = [json.loads(line)["value"] for line in shown.splitlines()]
    assert values == [{"euros": 2.5}] * KEYS
    assert len(accounts.outputs) == KEYS

    accounts.deploy(SECOND)  # the upgrade is gone
    accounts.send("last.txt", ["k7"])
    with accounts.running():
        eventually(lambda: len(accounts.outputs) > KEYS, "an event meets k7")
    assert accounts.outputs[-1] == "k7 [('euros', 5.0)]"


@pytest.mark.long
@pytest.mark.parametrize("host", ["resident", "micro-batch"])
def test_an_idle_run_upgrades_all_state_on_spark(
    tmp_path: Path, eventually: Eventually, host: str
) -> None:
    accounts = Accounts(tmp_path, host)
    accounts.begin(eventually)
    accounts.deploy(SECOND + UPGRADE)
    with accounts.running():
        accounts.send("more.txt", ["k1", "k2", "new"])  # while it upgrades
        eventually(lambda: "all objects are of version 2" in accounts.log, "the end")
        eventually(lambda: len(accounts.outputs) == KEYS + 3, "the events")
    assert accounts.versions() == {2: KEYS + 1}
    assert sorted(accounts.outputs[KEYS:]) == [
        "k1 [('euros', 5.0)]",
        "k2 [('euros', 5.0)]",
        "new [('euros', 2.5)]",
    ]


def test_new_attributes_are_filled_in(tmp_path: Path, eventually: Eventually) -> None:
    accounts = Accounts(tmp_path, "in process")
    accounts.begin(eventually, 300)
    accounts.deploy(FILLED)
    with accounts.running():
        eventually(lambda: "have the attributes of a new one" in accounts.log, "the end")
    assert "300 upgraded" in accounts.log
    assert all(b"owners" in raw for raw in accounts.stored().values())


def test_an_object_that_cannot_be_upgraded_ends_the_run_and_stays(
    tmp_path: Path, eventually: Eventually
) -> None:
    """It is named as if an event had met it, and a run with the right function continues."""
    accounts = Accounts(tmp_path, "in process")
    accounts.begin(eventually, 300)
    accounts.deploy(SECOND + WRONG)
    with accounts.running() as run:
        run.wait(LIMIT_S)
    assert run.returncode not in (0, None)
    assert "balance" in accounts.log
    assert "state of key 'k" in accounts.log
    assert "ZeroDivisionError" in accounts.log
    assert accounts.versions() == {1: 300}

    accounts.deploy(SECOND + UPGRADE)
    with accounts.running():
        eventually(lambda: "all objects are of version 2" in accounts.log, "the end")
    assert accounts.versions() == {2: 300}
