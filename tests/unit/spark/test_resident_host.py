"""The resident host: what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.apps import values
from wallaroo.errors import PeerError
from wallaroo.options import RunOptions
from wallaroo.spark.host import new_run


def test_a_cluster_is_refused_with_what_to_do(tmp_path: Path) -> None:
    options = RunOptions(master="spark://127.0.0.1:7077", latency="low")

    with pytest.raises(PeerError, match=r"local\[N\] only.*spark://127.0.0.1:7077.*Leave"):
        new_run(values.state_survives(tmp_path, tmp_path), options)
