"""Processes of sources, for the tests of connectors."""

from tests.unit.ingress.conftest import running

__all__ = ["running"]
