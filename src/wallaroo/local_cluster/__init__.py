"""A Spark cluster on this machine, on Spark's own Master and Worker: for trying things, and for
tests.

Where it runs: a terminal, a test.  `LocalCluster` is all that others need.
"""

from wallaroo.local_cluster.cluster import LocalCluster
from wallaroo.local_cluster.leaving import Removal
from wallaroo.local_cluster.status import ClusterStatus, WorkerStatus

__all__ = ["ClusterStatus", "LocalCluster", "Removal", "WorkerStatus"]
