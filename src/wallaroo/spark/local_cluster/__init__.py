"""A local cluster of Spark's own Master and Worker, for tests.

Where it runs: a terminal, a test.  `LocalCluster` is all that others need.
"""

from wallaroo.spark.local_cluster.cluster import LocalCluster
from wallaroo.spark.local_cluster.leaving import WorkerRemoval
from wallaroo.spark.local_cluster.status import ClusterStatus, ClusterWorker

__all__ = ["ClusterStatus", "LocalCluster", "WorkerRemoval", "ClusterWorker"]
