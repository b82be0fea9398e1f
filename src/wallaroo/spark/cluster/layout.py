"""The preferred hosts of a batch's tasks, in Spark's terms.

They are RDDs whose partitions have preferred hosts.

Spark places a task on the host that its RDD prefers, if a core is free there.  Two kinds of tasks:

* Level 0 reads the logs of sources: its RDD is one small element per task, each with a preferred
  host (Spark's ``makeRDD``).
* A level after a shuffle reads the output of Spark's shuffle. To assign hosts to it, it is united,
  partition by partition, with an *anchor*: an RDD of the same partitioner whose partitions, one
  ``None`` each, are cached on the hosts they belong to.  Spark prefers the host on which most
  parents of a partition are.  An anchor's partition that was lost with its host is computed again
  wherever the task runs, so the anchor never blocks it.

A layout is created once per placement and number of tasks, and used by all batches until the
cluster changes.
"""

from __future__ import annotations

import pickle
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import RDD, SparkContext
from pyspark.serializers import CPickleSerializer

from wallaroo.spark.session.shuffles import ShuffleCleaner

PICKLE = CPickleSerializer()
# after this many batches in a row with a task elsewhere than preferred the layout is replaced: the
# anchor of a task was placed elsewhere while its host was busy, and would stay there
MISPLACED = (8, 64, 512)


def own_task(task: int) -> int:
    """Return the partition of a record in all shuffles: its key, which is its task."""
    return task


def located(context: SparkContext, hosts: tuple[str, ...]) -> RDD[tuple[int, None]]:
    """Return an RDD of ``(task, None)``, one partition per task, each preferred on its host."""
    jvm = context._jvm
    assert jvm is not None
    rows = jvm.java.util.ArrayList()
    collections = jvm.scala.jdk.javaapi.CollectionConverters
    for task, host in enumerate(hosts):
        preferred = jvm.java.util.ArrayList()
        preferred.add(host)
        rows.add(
            jvm.scala.Tuple2(pickle.dumps((task, None)), collections.asScala(preferred).toSeq())
        )
    of_bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(collections.asScala(rows).toSeq(), of_bytes)
    return RDD(made.toJavaRDD(), context, PICKLE)


def shuffled_of(rdd: RDD[Any]) -> Any:
    """Return the JVM's ShuffledRDD, one step behind the RDD of ``partitionBy``."""
    return rdd._jrdd.rdd().dependencies().head().rdd()


class Layout:
    """The hosts of a batch's tasks.

    Without a shuffle of Spark's, it has no anchors.
    """

    def __init__(self, context: SparkContext, hosts: tuple[str, ...]):
        self.hosts = hosts
        self._context = context
        self._bases: dict[int, RDD[tuple[int, None]]] = {}
        self._keyed: RDD[Any] | None = None  # holds the shuffle
        self._made: Any = None

    @property
    def _anchor(self) -> Any:
        if self._keyed is None:
            self._keyed = located(self._context, self.hosts).partitionBy(len(self.hosts), own_task)
            self._made = shuffled_of(self._keyed).persist()
        return self._made

    def base(self, width: int) -> RDD[tuple[int, None]]:
        """Return the RDD for ``width`` tasks of level 0."""
        if width not in self._bases:
            self._bases[width] = located(self._context, self.hosts[:width])
        return self._bases[width]

    def anchored(self, rdd: RDD[Any]) -> RDD[Any]:
        """Return ``partitionBy``'s RDD on this layout's hosts, with a None per partition."""
        jvm = self._context._jvm
        assert jvm is not None
        united = shuffled_of(rdd).union(self._anchor)
        assert is_instance_of(
            self._context._gateway, united, "org.apache.spark.rdd.PartitionerAwareUnionRDD"
        )
        values = jvm.PythonRDD.valueOfPair(jvm.JavaPairRDD.fromJavaRDD(united.toJavaRDD()))
        return RDD(values, self._context, rdd._jrdd_deserializer)

    def prepare(self) -> None:
        """Place the anchor now, so that the first batch need not."""
        self._anchor.count()

    def forget(self) -> list[Any]:
        """Release the anchor; return the RDDs whose shuffle is no longer needed."""
        if self._keyed is None:
            return []
        self._anchor.unpersist(False)
        return [self._keyed]


class Layouts:
    """The layouts of the present members, by number of tasks.

    The cluster's lock guards them.
    """

    def __init__(self, cleaner: ShuffleCleaner):
        self._cleaner = cleaner
        self._by_tasks: dict[int, Layout] = {}
        # layouts no longer in use; the batch under way may still use them
        self._retired: list[Layout] = []
        self._misplaced = 0  # batches in a row with a task elsewhere than preferred

    def get(self, tasks: int) -> Layout | None:
        """Return the layout for this number of tasks, if there is one."""
        return self._by_tasks.get(tasks)

    def put(self, layout: Layout) -> None:
        """Use a layout from now on."""
        self._by_tasks[len(layout.hosts)] = layout

    def retire(self, layout: Layout) -> None:
        """Use a layout for the current batch only."""
        self._retired.append(layout)

    def retire_all(self) -> None:
        """Retire all layouts: the members have changed."""
        self._retired.extend(self._by_tasks.values())
        self._by_tasks = {}
        self._misplaced = 0

    def batch_done(self, tasks: int, is_as_preferred: bool) -> None:
        """Note whether a batch's tasks ran on their preferred hosts; release unneeded layouts."""
        self._misplaced = 0 if is_as_preferred else self._misplaced + 1
        if self._misplaced in MISPLACED:
            self._retired.append(self._by_tasks.pop(tasks))
        for layout in self._retired:
            self._cleaner.forget(layout.forget())
        self._retired = []
