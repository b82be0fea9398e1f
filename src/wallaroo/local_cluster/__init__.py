"""A Spark cluster on this machine, for trials and tests.

It runs Spark's own Master and Worker.

Where it runs: a terminal, a test.  `LocalCluster` is all that others need.
"""

from wallaroo.local_cluster.cluster import LocalCluster
from wallaroo.local_cluster.leaving import Removal
from wallaroo.local_cluster.status import ClusterStatus, WorkerStatus

__all__ = ["ClusterStatus", "LocalCluster", "Removal", "WorkerStatus"]
