"""The function sink: every output reaches the function, in order; what fails is tried again."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.sinks.identities import INLINE_BYTES_MAX, commit_of, history_to
from wallaroo.errors import PeerError, WallarooParameterError
from wallaroo.sinks import FunctionSinkConfig, SinkCommitter
from wallaroo.sinks.interface import WriteContext

ROOT = Path(__file__).parents[3]
DRAIN_SECONDS = 400.0
Eventually = Callable[..., None]


class Flaky:
    """Keeps what it is given; fails as often as asked, call by call."""

    def __init__(self, *failures: int):
        self.failures = list(failures)  # of the first call, the second, ...
        self.taken: list[list[bytes]] = []
        self.tries = 0

    def __call__(self, outputs: list[bytes]) -> None:
        self.tries += 1
        if self.failures and self.failures[0]:
            self.failures[0] -= 1
            raise ConnectionError("no answer")
        del self.failures[:1]
        self.taken.append(outputs)

    @property
    def numbers(self) -> list[int]:
        return [int(output) for call in self.taken for output in call]


def staged(config: FunctionSinkConfig, staging: Path, batch: int, count: int) -> list[Any]:
    """Two tasks with ``count`` numbers each; large batches are staged in files."""
    staging.mkdir(exist_ok=True)
    tokens = []
    for task in range(2):
        context = WriteContext("s", batch, task, "a", staging, True, INLINE_BYTES_MAX)
        writer = config.writer(context)
        first = batch * 100_000 + task * count
        writer.write([b"%08d" % number for number in range(first, first + count)])
        tokens.append(writer.prepare())
    return tokens


def expected(batch: int, count: int) -> list[int]:
    return list(range(batch * 100_000, batch * 100_000 + 2 * count))


def opened(
    config: FunctionSinkConfig, staging: Path, last: int = -1, tokens: list[Any] | None = None
) -> SinkCommitter:
    committer = config.committer("s", staging, True)
    committer.recover(history_to(last), tokens or [])
    return committer


def test_outputs_arrive_in_order_and_in_slices(tmp_path: Path) -> None:
    function = Flaky()
    config = FunctionSinkConfig(function, batch=700)
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), staged(config, tmp_path, 0, 5000))
    committer.commit(commit_of(1), [None, None])
    committer.commit(commit_of(2), staged(config, tmp_path, 2, 3))
    committer.close(DRAIN_SECONDS)
    assert function.numbers == expected(0, 5000) + expected(2, 3)
    assert max(map(len, function.taken)) == 700
    status = committer.status()
    assert (status.committed_batch, status.outputs, status.pending_bytes) == (2, 10_006, 0)
    assert not list(tmp_path.glob("*.out"))


def test_a_call_that_fails_is_made_again_and_those_before_it_are_not(tmp_path: Path) -> None:
    function = Flaky(0, 2, 0, 1)
    config = FunctionSinkConfig(function, batch=10, retries=2, backoff_s=0.001)
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), staged(config, tmp_path, 0, 20))
    committer.close(DRAIN_SECONDS)
    assert function.numbers == expected(0, 20)
    assert function.tries == 4 + 3


def test_while_it_is_tried_again_the_status_says_so_and_commits_return(
    tmp_path: Path, eventually: Eventually
) -> None:
    function = Flaky(1)
    config = FunctionSinkConfig(function, name="notify", backoff_s=1000.0, retries=None)
    committer = opened(config, tmp_path)
    tokens = staged(config, tmp_path, 0, 3)
    committer.commit(commit_of(0), tokens)
    wanted = "function notify (ConnectionError: no answer; retry 1 in 30 s)"
    eventually(lambda: committer.status().waiting_for == wanted, "the status says what failed")
    assert committer.backlog() > 0
    committer.close(0)
    again = opened(config, tmp_path, 0, tokens)
    again.close(DRAIN_SECONDS)
    assert function.numbers == expected(0, 3)


def test_pauses_double_up_to_a_bound(tmp_path: Path, eventually: Eventually) -> None:
    function = Flaky(3)
    config = FunctionSinkConfig(function, name="f", backoff_s=0.01, retries=2)
    committer = opened(config, tmp_path)
    committer.commit(commit_of(0), staged(config, tmp_path, 0, 3))
    eventually(lambda: "failed 3 times" in committer.status().waiting_for, "the run ends")
    assert function.tries == 3


def test_a_function_that_goes_on_failing_ends_the_run_and_the_next_one_goes_on(
    tmp_path: Path,
) -> None:
    function = Flaky(2)
    config = FunctionSinkConfig(function, retries=1, backoff_s=0.001, name="notify")
    committer = opened(config, tmp_path)
    tokens = staged(config, tmp_path, 0, 2000)
    committer.commit(commit_of(0), tokens)
    with pytest.raises(
        PeerError,
        match=r"Function 'notify' of sink 's' failed 2 times in a row with outputs of batch 0, "
        r"the last time with ConnectionError: no answer\. Nothing is lost",
    ):
        committer.close(DRAIN_SECONDS)
    assert function.taken == []
    opened(config, tmp_path, 0, tokens).close(DRAIN_SECONDS)
    assert function.numbers == expected(0, 2000)


CHILD = """
import json, sys
from pathlib import Path
from tests.unit.sinks.identities import commit_of, history_to
from wallaroo.sinks import FunctionSinkConfig
out, staging, last, tokens = json.loads(sys.argv[1])
def append(outputs):
    with open(out, "a") as file:
        file.writelines(output.decode() + chr(10) for output in outputs)
committer = FunctionSinkConfig(append, batch=10).committer("s", Path(staging), True)
committer.recover(history_to(last), tokens)
committer.close(180.0)
"""


@pytest.mark.parametrize(
    "fault", ["function.call:1", "function.called:1", "function.called:3", "function.left:1"]
)
def test_a_driver_killed_in_a_call_loses_nothing_and_repeats_one_batch_at_most(
    tmp_path: Path, fault: str
) -> None:
    config, out = FunctionSinkConfig(Flaky()), tmp_path / "out"
    opened(config, tmp_path / "staging").close(0)
    tokens = staged(config, tmp_path / "staging", 0, 20)
    arguments = json.dumps([str(out), str(tmp_path / "staging"), 0, tokens])
    for plan, code in ((fault, -signal.SIGKILL), ("", 0)):
        environment = os.environ | {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "WALLAROO_FAULT": plan,
        }
        command = [sys.executable, "-c", CHILD, arguments]
        assert subprocess.run(command, env=environment, check=False, timeout=400).returncode == code
    numbers = [int(line) for line in out.read_text().splitlines()]
    assert sorted(set(numbers)) == expected(0, 20)
    assert numbers[-40:] == expected(0, 20)
    assert len(numbers) <= 80


def test_the_configuration_travels_without_its_function() -> None:
    config = FunctionSinkConfig(lambda outputs: None, name="here", batch=7, retries=None)
    travelled = pickle.loads(pickle.dumps(config))
    assert (travelled.name, travelled.batch, travelled.retries) == ("here", 7, None)
    assert travelled.label == "function here"
    with pytest.raises(AssertionError, match="driver only"):
        travelled.function([])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"function": 7}, "7 is not a function"),
        ({"batch": 0}, "batch=0 outputs"),
        ({"retries": -1}, "retries=-1 is not a number"),
        ({"backoff_s": -0.5}, "backoff_s=-0.5 is not a time"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_fix(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WallarooParameterError, match=said):
        FunctionSinkConfig(**{"function": print, **options})
