"""Processes of sources, for the tests of sources."""

from tests.unit.ingress.conftest import running

__all__ = ["running"]
