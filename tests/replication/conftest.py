"""Two hosts for each test, or a replica in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replication.hosts import Hosts
from wallaroo.network.proved_connections import TaskListener
from wallaroo.network.replica import Replica
from wallaroo.state.replication.keeper import Keeper

HOST = "127.0.0.1"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    there = Hosts(tmp_path)
    yield there
    there.end()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
def replica(copy: Path, reported: list[str]) -> Iterator[Replica]:
    """A replica in this process, and the run of epoch 5 that it is of."""
    keeper = Keeper(copy, reported.append)
    secret = keeper.key("").secret
    with TaskListener(HOST, bytes.fromhex(secret), reachable_as=HOST) as listener:
        listener.begin(
            lambda connection: threading.Thread(
                target=keeper.serve, args=(connection,), daemon=True
            ).start(),
            keeper.refused,
        )
        yield Replica(HOST, int(listener.address[1]), secret, checkpoint="c", epoch=5, owner="r5")
