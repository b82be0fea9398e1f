"""An S3 server for the tests of this folder."""

from __future__ import annotations

from tests.stores.conftest import place, s3_server

__all__ = ["place", "s3_server"]
