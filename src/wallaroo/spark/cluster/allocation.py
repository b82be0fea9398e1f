"""Allocation of a standalone cluster's executors to drivers.

Where it runs: driver, of a standby and of the run that it becomes.

Such a master gives all free cores to the first driver that registers.  So a standby requests none
until it leads.  A driver that hangs or is disconnected keeps its executors, since its JVM, or the
master's connection to it, may be alive: a run that takes over sends the master the message that a
driver sends when it ends.  Other cluster managers have their own rules for both.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from wallaroo.spark.cluster.membership import executors_of
from wallaroo.spark.session.spark_errors import reason_of

STANDALONE = "spark://"
ALL = (1 << 31) - 1  # the master's own number for unlimited
_SEPARATOR = " "
_log = logging.getLogger("wallaroo.run")


def allocation_of(context: SparkContext) -> str:
    """Return the address of such a master, with this driver's application; else empty."""
    is_standalone = str(context.master).startswith(STANDALONE)
    return f"{context.master}{_SEPARATOR}{context.applicationId}" if is_standalone else ""


def yield_workers(context: SparkContext) -> None:
    """Ask the master for no executors, and end those that it gave before."""
    if not allocation_of(context):
        return
    _request(context, 0)
    names = [name for host in executors_of(context).values() for name in host.executors]
    if names:
        context._jsc.sc().killExecutors(_java(context).PythonUtils.toSeq(names))


def request_workers(context: SparkContext) -> None:
    """Ask the master for all executors again."""
    if allocation_of(context):
        _request(context, ALL)


def _request(context: SparkContext, executors: int) -> None:
    hosts = _java(context).PythonUtils.toScalaMap({})
    context._jsc.sc().requestTotalExecutors(executors, 0, hosts)


def end_workers(context: SparkContext, former: str) -> None:
    """Ask the master to end the executors of the allocation ``former``, if it gave them."""
    master, _, application = former.partition(_SEPARATOR)
    if not application or master != context.master:
        return
    _log.info("Spark's master ends the executors of the run that was taken over (%s)", application)
    for address in context.master.removeprefix(STANDALONE).split(","):
        try:
            _unregister(context, f"{STANDALONE}{address}", application)
        except Py4JError as error:
            _log.warning(
                "Spark's master %s could not be asked to end application %s of the run that was "
                "taken over, which may keep its workers: %s",
                address,
                application,
                reason_of(error),
            )


def _unregister(context: SparkContext, url: str, application: str) -> None:
    spark = _java(context).org.apache.spark
    message = getattr(spark.deploy, "DeployMessages$UnregisterApplication")(application)
    environment = context._jsc.sc().schedulerBackend().rpcEnv()
    environment.setupEndpointRef(spark.rpc.RpcAddress.fromSparkURL(url), "Master").send(message)


def _java(context: SparkContext) -> Any:
    return context._jvm
