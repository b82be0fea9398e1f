"""Savepoints of applications on a cluster, and moves between one machine and a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.owners import KEYS, ClusterDrivers, Drivers, drivers_in, ending, wait_for
from tests.stores.conftest import Place
from wallaroo.cli.main import main
from wallaroo.spark.local_cluster import LocalCluster

HOST = "resident"
LAST = 50  # events of a run that come once it is warm


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("cluster"), workers=1, cores=1) as cluster:
        yield cluster


def process(drivers: Drivers, events: int, *options: str, saved: Path | None = None) -> None:
    """Process all events up to a number, from the start of a run to its stop.

    A savepoint of its checkpoint is made during the last ones, if ``saved`` is given.
    """
    driver = drivers.start(*options)
    drivers.send(events - LAST).join()
    wait_for(lambda: len(drivers.lines()) >= events - LAST, "all but the last events")
    sending = drivers.send(events)
    if saved is not None:
        save(options[0].removeprefix("--checkpoint="), saved)
    sending.join()
    wait_for(lambda: len(drivers.lines()) >= events, "all events")
    driver.terminate()
    drivers.require_end(driver, 0)


def save(checkpoint: Path | str, saved: Path | str) -> None:
    assert main(["state", "save", str(checkpoint), str(saved)]) == 0


@pytest.mark.long
def test_an_application_moves_to_a_cluster_and_back_and_is_forked_from_there(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    """Exactly once, with its state and acknowledgements; the fork has the rest."""
    here, there = tmp_path / "here", tmp_path / "there"
    with drivers_in(tmp_path, HOST) as drivers:
        process(drivers, 100, f"--checkpoint={here}")
    save(here, tmp_path / "saved-here")

    with ending(ClusterDrivers(tmp_path, HOST, cluster)) as drivers:
        begun = f"--from-savepoint={tmp_path / 'saved-here'}"
        process(drivers, 400, f"--checkpoint={there}", begun, saved=tmp_path / "running")
    save(there, tmp_path / "saved-there")

    with drivers_in(tmp_path, HOST) as drivers:
        begun = f"--from-savepoint={tmp_path / 'saved-there'}"
        process(drivers, 500, f"--checkpoint={tmp_path / 'back'}", begun)
        drivers.require_exact(500)

    (tmp_path / "fork").mkdir()
    with drivers_in(tmp_path / "fork", HOST) as fork:
        driver = fork.start("--fork", f"--from-savepoint={tmp_path / 'running'}")
        last = f"key{499 % KEYS} 499 {499 // KEYS + 1}"
        fork.send(500).join()
        wait_for(lambda: last in fork.lines(), "the last event")
        driver.terminate()
        fork.require_end(driver, 0)
        rest = [f"key{each % KEYS} {each} {each // KEYS + 1}" for each in range(500)]
        assert sorted(fork.lines()) == sorted(rest[500 - len(fork.lines()) :])
        assert 100 <= len(fork.lines()) <= 100 + LAST


@pytest.mark.s3
@pytest.mark.long
def test_an_application_moves_to_a_cluster_whose_checkpoint_is_in_a_store(
    tmp_path: Path, place: Place, cluster: LocalCluster
) -> None:
    """From a savepoint in the store; another run continues there."""
    with drivers_in(tmp_path, HOST) as drivers:
        process(drivers, 100, f"--checkpoint={tmp_path / 'here'}")
    save(tmp_path / "here", f"{place.url}-saved")

    with ending(ClusterDrivers(tmp_path, HOST, cluster)) as drivers:
        begun = f"--from-savepoint={place.url}-saved"
        process(drivers, 400, f"--checkpoint={place.url}", begun)
        process(drivers, 500, f"--checkpoint={place.url}")
        drivers.require_exact(500)
