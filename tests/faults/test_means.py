"""What the verifier builds on: acknowledged ports that stay, fault points that kill and are
counted, runs that are started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import wallaroo
from tests.verification.applications.sequence import decode
from wallaroo.cli.main import build_parser
from wallaroo.cli.run.command import parse
from wallaroo.cli.send.acknowledged import send_acknowledged
from wallaroo.cli.send.sending import of_payloads
from wallaroo.cli.verify.arguments import kinds_of
from wallaroo.errors import PeerError
from wallaroo.ingress.process import Feeders, Feeding
from wallaroo.spark.local_cluster.hosts import free_ports
from wallaroo.spool import SpoolReader, folder_of
from wallaroo.testing.verify.trial.processes import Kind
from wallaroo.testing.verify.trial.schedule import Fault
from wallaroo.testing.verify.trial.supervised import FRUITLESS_MAX, Supervised

SOURCES = str(Path(wallaroo.__file__).parents[1])


def test_an_acknowledged_port_is_the_one_asked_for_and_stays_when_the_ingress_dies(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Messages sent over the death of the ingress are in the spool once."""
    plain, acked = free_ports(2)
    feeders = Feeders()
    try:
        sources = [wallaroo.TCPSourceConfig("In", "127.0.0.1", plain, decode)]
        feeders.start(
            sources,
            tmp_path,
            Feeding(is_durable=True, log=lambda line: None, ack_ports={"In": acked}),
        )
        send_acknowledged(("127.0.0.1", acked), "one", of_payloads([b"x" * 12] * 10))
        os.kill(feeders.pids["ingress"], signal.SIGKILL)
        eventually(lambda: _is_polled(feeders), "the ingress is started again")
        send_acknowledged(("127.0.0.1", acked), "one", of_payloads([b"x" * 12] * 25))
        assert feeders.ack_addresses == {"In": ("127.0.0.1", acked)}
    finally:
        feeders.stop()
    assert SpoolReader(folder_of(tmp_path, "In")).head().position.events == 25


def _is_polled(feeders: Feeders) -> bool:
    before = feeders.pids.get("ingress")
    feeders.poll()
    return feeders.pids.get("ingress") != before


def test_run_takes_acknowledged_ports_by_source_name() -> None:
    """A name may have spaces; what is no port is refused."""
    command = [
        "run",
        "--acknowledged",
        "Market Data=7111",
        "--acknowledged",
        "Orders=7110",
        "app.py",
    ]
    options, _ = parse(build_parser().parse_args(command))
    assert options.acknowledged == [("Market Data", 7111), ("Orders", 7110)]
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "--acknowledged", "Orders", "app.py"])


def test_verify_knows_its_kinds() -> None:
    """--only names kinds; the default is all."""
    options = build_parser().parse_args(["verify", "--app", "mine.py", "--only", "driver,egress"])
    assert options.only == kinds_of("driver,egress") == (Kind.DRIVER, Kind.EGRESS)
    assert build_parser().parse_args(["verify", "--app", "mine.py"]).only == tuple(Kind)
    with pytest.raises(SystemExit):
        build_parser().parse_args(["verify", "--app", "mine.py", "--only", "everything"])


def test_faults_are_chosen_by_either_name_and_partitions_take_other_hosts() -> None:
    """--deeds was the option's name; wallaroo verify has no hosts to part."""
    command = ["verify", "--app", "mine.py"]
    for name in ("--faults", "--deeds"):
        options = build_parser().parse_args([*command, name, "kill,hold"])
        assert options.faults == (Fault.KILL, Fault.HOLD)
    assert Fault.PARTITION not in build_parser().parse_args([*command, "--faults", "all"]).faults
    with pytest.raises(SystemExit):
        build_parser().parse_args([*command, "--faults", "partition"])


PASSING = (
    "from wallaroo.instrumentation.faults import fault_point\nfor name in 'abab':\n    "
    "fault_point(name)\nprint('through')"
)


def _pass_points(**environment: str) -> subprocess.CompletedProcess[str]:
    child = {**os.environ, "PYTHONPATH": SOURCES, **environment}
    return subprocess.run(
        [sys.executable, "-c", PASSING],
        env=child,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_a_fault_point_kills_at_the_pass_that_was_named(tmp_path: Path) -> None:
    """And nowhere else; a log of points says how often each is passed."""
    log = tmp_path / "points"
    assert _pass_points(WALLAROO_FAULT="b:2").returncode == -signal.SIGKILL
    assert _pass_points(WALLAROO_FAULT="b:3").stdout == "through\n"
    assert _pass_points(WALLAROO_FAULT_LOG=str(log)).stdout == "through\n"
    assert log.read_text().split() == ["a", "b", "a", "b"]


def test_fault_points_are_trace_points_where_a_trace_is_asked_for(tmp_path: Path) -> None:
    """Unless one of them is to kill, or to be logged."""
    trace = tmp_path / "trace"
    assert _pass_points(WALLAROO_TRACE=str(trace)).stdout == "through\n"
    lines = [line.split("\t") for line in trace.read_text().splitlines()]
    assert [line[-1] for line in lines] == ["a", "b", "a", "b"]
    assert all(len(line) == 6 for line in lines)
    assert _pass_points(WALLAROO_FAULT="b:2", WALLAROO_TRACE=str(trace)).returncode == -9


def test_a_run_that_only_ever_fails_is_given_up_with_its_log(tmp_path: Path) -> None:
    """A run that cannot start must not be started forever."""
    run = Supervised(["there_is_no_such_application.py"], tmp_path / "log", lambda text: None)
    run.start()
    with pytest.raises(PeerError, match="there is no such file"):
        _start_for_ever(run)
    assert run.starts == FRUITLESS_MAX + 1


def _start_for_ever(run: Supervised) -> None:
    for _ in range(10 * FRUITLESS_MAX):
        run.wait_for_end(20)
        run.look()
