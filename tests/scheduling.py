"""Which tests one process of pytest-xdist runs, and in which order.

All tests of a file are run by one process (``--dist loadfile``), and so are files that share what
takes long to start: one Spark, one Kafka broker.  What takes long begins first, so that no process
is left with it at the end.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

SPARK, KAFKA = "one Spark", "one Kafka broker"
SHARED = {
    "tests/conformance/test_conformance.py": SPARK,
    "tests/conformance/test_error_policies.py": SPARK,
    "tests/conformance/test_errors.py": SPARK,
    "tests/conformance/test_losses.py": SPARK,
    "tests/conformance/test_time_moves.py": SPARK,
    "tests/e2e/test_closed_connections.py": SPARK,
    "tests/e2e/test_examples.py": SPARK,
    "tests/e2e/test_latency_target.py": SPARK,
    "tests/e2e/test_own_source.py": SPARK,
    "tests/e2e/test_queries_live.py": SPARK,
    "tests/unit/spark/test_host.py": SPARK,
    "tests/connectors/spark/test_spark_source.py": SPARK,
    "tests/connectors/spark/test_checkpoint_source.py": SPARK,
    "tests/e2e/test_applications.py": KAFKA,
    "tests/e2e/test_kafka.py": KAFKA,
    "tests/unit/cli/test_kafka_commands.py": KAFKA,
    "tests/unit/cli/test_templates.py": KAFKA,
    "tests/connectors/kafka/test_kafka_sink.py": KAFKA,
    "tests/connectors/kafka/test_kafka_rights.py": KAFKA,
    "tests/connectors/test_dev.py": KAFKA,
    "tests/endpoints/test_kafka_output.py": KAFKA,
    "tests/connectors/kafka/test_kafka_log.py": KAFKA,
    "tests/connectors/kafka/test_kafka_run.py": KAFKA,
    "tests/connectors/kafka/test_chain.py": KAFKA,
    "tests/connectors/kafka/test_kafka_outages.py": KAFKA,
    "tests/connectors/kafka/test_kafka_identity.py": KAFKA,
    "tests/connectors/kafka/test_kafka_outage.py": KAFKA,
    "tests/connectors/spark/test_kafka_connector.py": KAFKA,
    "tests/savepoints/test_kafka_fork.py": KAFKA,
}
LONG = (
    SPARK,
    "tests/faults/test_verify_short.py",
    "tests/unit/spark/local_cluster/test_local_cluster.py",
    KAFKA,
    "tests/faults/test_crash_points.py",
    "tests/e2e/test_cluster.py",
    "tests/e2e/test_standby_cluster.py",
    "tests/stores/test_stored_runs.py",
    "tests/stores/test_stored_cluster.py",
    "tests/replication/test_replicated_runs.py",
    "tests/replication/test_replicated_spark.py",
    "tests/ingresses/test_joined_runs.py",
    "tests/ingresses/test_joined_spark.py",
    "tests/savepoints/test_clusters.py",
    "tests/e2e/test_lakehouse.py",
    "tests/e2e/test_strangers.py",
    "tests/e2e/test_quiet_deaths.py",
    "tests/e2e/test_state_live.py",
    "tests/e2e/test_background_upgrades.py",
    "tests/e2e/test_dashboard.py",
    "tests/connectors/postgres/test_postgres_spark.py",
    "tests/connectors/spark/test_delta_connector.py",
    "tests/connectors/lake/test_delta_kernel.py",
    "tests/e2e/test_terminal.py",
    "tests/unit/cli/test_new_and_dev.py",
    "tests/simulation/test_simulation.py",
    "tests/properties/test_packing.py",
)


def shared_by(nodeid: str) -> str:
    """Return what keeps a test together with others: its file, or what several files share."""
    file = nodeid.split("::", 1)[0]
    return SHARED.get(file, file)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what is to be run first, first."""
    ranks = {shared: rank for rank, shared in enumerate(LONG)}
    return sorted(items, key=lambda item: ranks.get(shared_by(item.nodeid), len(LONG)))


class Together(LoadFileScheduling):
    """Gives each process what belongs together."""

    def _split_scope(self, nodeid: str) -> str:
        return shared_by(nodeid)
