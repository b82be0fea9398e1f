"""Processes to look at and to end."""

from tests.unit.spark.local_cluster.conftest import spawn

__all__ = ["spawn"]
