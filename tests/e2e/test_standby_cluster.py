"""A standby of an application on a cluster: real Master, Workers, executors and drivers."""

from __future__ import annotations

from pathlib import Path

from tests.faults.owners import ClusterDrivers, Fault, ending, stand_by
from wallaroo.spark.local_cluster import LocalCluster


def test_a_standby_continues_in_place_of_a_leader_whose_host_is_cut_off(tmp_path: Path) -> None:
    """With the leader's workers, which the standby, although it came first, had left to it.

    Each event leaves once, in its key's order; the former leader, continued, ends with the
    sentence; a stop in order ends both of the last ones.
    """
    with (
        LocalCluster.start(tmp_path / "cluster", workers=2, cores=1) as cluster,
        ending(ClusterDrivers(tmp_path, "resident", cluster)) as drivers,
    ):
        stand_by(drivers, 1, (Fault.CUT_OFF,), standbys=1)
