"""Hosts on this machine whose cables can be pulled."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.verification.__main__ import build_parser, verification_command
from tests.verification.namespaces import CLIENTS, Hosts, unsupported_reason
from wallaroo.cli.verify.arguments import faults_of
from wallaroo.errors import WallarooParameterError
from wallaroo.testing.verify.trial.schedule import Fault

REASON = unsupported_reason()
KNOCK = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5)"


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_hosts_reach_each_other_unless_a_cable_is_pulled() -> None:
    """One host, or only the way between two of them."""
    with Hosts(2) as hosts:

        def listen() -> socket.socket:
            return socket.create_server((hosts.address(CLIENTS), 0))

        with hosts.called_on(CLIENTS, listen) as server:
            address, port = server.getsockname()[:2]

            def is_reached(number: int) -> bool:
                command = (sys.executable, "-S", "-c", KNOCK, address, str(port))
                there = hosts.command_of_worker(number, command)
                return subprocess.run(there, capture_output=True, check=False).returncode == 0

            assert is_reached(1)
            hosts.cut_between("worker-1", CLIENTS)
            assert (is_reached(1), is_reached(2)) == (False, True)
            hosts.heal()
            hosts.cut(CLIENTS)
            assert not is_reached(1)
            hosts.heal()
            assert is_reached(1)
    assert hosts.names[1] not in subprocess.run(
        ["ip", "netns"], capture_output=True, text=True, check=True
    ).stdout.split(hosts._mark)


def test_partitions_go_alone_and_are_refused_with_the_reason_where_they_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They run on hosts of their own."""
    assert Fault.PARTITION not in faults_of("all")
    options = build_parser().parse_args(["--deeds", "partition,kill"])
    with pytest.raises(WallarooParameterError, match="without other faults"):
        verification_command(options)
    monkeypatch.setattr(
        "tests.verification.__main__.unsupported_reason", lambda: "network namespaces need root"
    )
    options = build_parser().parse_args(["--deeds", "partition"])
    with pytest.raises(WallarooParameterError, match="need root"):
        verification_command(options)
